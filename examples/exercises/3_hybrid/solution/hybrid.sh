#!/bin/sh
# Exercise 3: fill in each `____`, then: sh hybrid.sh
set -eu

# Parameters of the model, as a number: 12345.  Command: hanji plan --set model.preset=nano
parameters=29700

# Four ranks: groups of `fsdp` ranks share the state out, `dp` groups are replicas.
dp=2
fsdp=2

# Bytes of AdamW's two float32 moments on each rank:
optimizer_bytes=$((2 * 4 * parameters / fsdp))

# Bytes that all four ranks send in a step. `bytes` are those of the float32 parameters. Each rank
# gathers the layers of its group twice (forward, backward), scatters the sums of their gradients
# within its group, and averages its shard with those of the other groups, by a ring.
# The shell's / drops the remainder: multiply before you divide.
bytes=$((4 * parameters))
gather_bytes=$((2 * bytes * (fsdp - 1) / fsdp))
scatter_bytes=$((bytes * (fsdp - 1) / fsdp))
average_bytes=$((2 * (bytes / fsdp) * (dp - 1) / dp))
wire_bytes=$((4 * (gather_bytes + scatter_bytes + average_bytes)))

# After another choice remove the folder first: rm -r run
[ -d run ] || hanji train --out run --ranks 4 --steps 10 --set model.preset=nano \
  --set parallel.data=hsdp --set parallel.share_memory=false --set mesh.dp=$dp --set mesh.fsdp=$fsdp

echo "dp=$dp"
echo "fsdp=$fsdp"
echo "parameters=$parameters"
echo "optimizer_bytes=$optimizer_bytes"
echo "wire_bytes=$wire_bytes"
