#!/usr/bin/env bash
# Trains on all GPUs of one machine, or on two processes of a CPU. Given again after a power cut, it goes on.
set -euo pipefail

RUN=${RUN:-runs/en-de}
DATA=${DATA:-data}
WORKERS=${WORKERS:-2}

if [ -f "$RUN/run.json" ]; then
  WHAT=(--resume "$RUN")
else
  WHAT=(--src "$DATA/train.en" --tgt "$DATA/train.de" --out "$RUN" train.batch_tokens=65536)
fi
# a worker that dies is started again with the others, from the last checkpoint, three times at most
torchrun --standalone --nproc-per-node "$WORKERS" --max-restarts 3 -m regard train "${WHAT[@]}"
