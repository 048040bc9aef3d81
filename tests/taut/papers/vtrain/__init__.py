"""vTrain's first and third case study."""
