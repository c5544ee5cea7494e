#!/bin/sh
# Exercise 4: fill in each `____`, then: sh overhead.sh
set -eu
job="--ranks 2 --steps 40 --set model.preset=nano"

# Gradients travel through sockets. After a change: rm -r before
[ -d before ] || hanji train --out before $job --set comm.engine=gloo
hanji report before

# Milliseconds of a step in which bytes move and nothing is computed: column `bytes` of the table by rank of
# `hanji report before`, the mean of both ranks (other tables print medians, which differ).
mean() {  # of a member of each rank, in milliseconds
  hanji report before --json | awk -F': ' -v member="\"$1\"" '/"by_axis"/ {exit}
    index($1, member) {sum += $2; ranks++} /"by_rank"/ {sum = ranks = 0} END {print 1e3 * sum / ranks}'
}
exposed_ms=$(mean exposed_transfer)
# Its share of a step, in percent:
share_percent=$(awk "BEGIN {print 100 * $exposed_ms / $(mean seconds)}")
# How much faster a step would be at most if no byte moved, as 1.5 (Amdahl's bound):
speed_up_at_most=$(awk "BEGIN {print 1 / (1 - $share_percent / 100)}")

# Change one key of [comm] (the later one of a key counts), and train again. After a change: rm -r after
change=comm.engine=shm
[ -d after ] || hanji train --out after $job --set comm.engine=gloo --set $change
hanji report before after

echo "exposed_ms=$exposed_ms"
echo "share_percent=$share_percent"
echo "speed_up_at_most=$speed_up_at_most"
echo "change=$change"
