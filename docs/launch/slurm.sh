#!/usr/bin/env bash
# sbatch docs/launch/slurm.sh: four machines of eight GPUs each. The run folder and the data are on a disk that all of them see.
#SBATCH --job-name=regard
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@120
set -euo pipefail

RUN=${RUN:-$SLURM_SUBMIT_DIR/runs/en-de}
DATA=${DATA:-$SLURM_SUBMIT_DIR/data}
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

if [ -f "$RUN/run.json" ]; then # the job was put into the queue again
  WHAT=(--resume "$RUN")
else
  WHAT=(--src "$DATA/train.en" --tgt "$DATA/train.de" --out "$RUN" train.batch_tokens=800000)
fi
# one launcher for each machine; --signal=TERM@120 asks for a checkpoint two minutes before the time is over
srun --kill-on-bad-exit=1 torchrun \
  --nnodes "$SLURM_NNODES" --nproc-per-node 8 --max-restarts 3 \
  --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$HEAD:29500" \
  -m regard train "${WHAT[@]}"
