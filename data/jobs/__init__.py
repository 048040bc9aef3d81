"""Jobs that share a cluster: ``spec`` says what a job is, ``load`` reads them from YAML or CSV."""
