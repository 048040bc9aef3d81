export CUDA_VISIBLE_DEVICES=$gpus
exec torchrun --nnodes %d --nproc-per-node "$count" --node-rank "$rank" \
  --master-addr "${MASTER_ADDR:-$first}" --master-port "${MASTER_PORT:-29500}" "$@"
