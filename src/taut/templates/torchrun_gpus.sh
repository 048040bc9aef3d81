# Processes of one node do not have consecutive numbers: every GPU is a node of one process.
for place in $places; do
  CUDA_VISIBLE_DEVICES=${place#*:} torchrun --nnodes %d --nproc-per-node 1 --node-rank "${place%%:*}" \
    --master-addr "${MASTER_ADDR:-$first}" --master-port "${MASTER_PORT:-29500}" "$@" &
done
wait
