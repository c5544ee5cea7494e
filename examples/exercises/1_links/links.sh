#!/bin/sh
# Exercise 1: fill in each `____`, then: sh links.sh        GB = 10^9 bytes, one way
set -eu
export LC_ALL=C

# Memory: what one core copies, what all cores copy at once together, and what one core copies that the
# farthest other core has written.  Command: hanji topo --measure
memory_one_gb=____
memory_all_gb=____
between_cores_gb=____

# A socket of the loopback device: 8 MiB from one rank to another; the column algbw.
# Command: hanji bench send --ranks 2 --engine gloo --placement private --bytes 8MiB --pairs 1
loopback_gb=____
# The link of `hanji topo --nominal` with the nearest rate one way (the whole name, as in the first column):
loopback_is_like="____"

# A network of 200 Mbit/s. Predict first what a message of 4 MiB takes, in milliseconds:
predicted_ms=____
# Then throttle the loopback device of a network namespace of our own, and measure.
cat > throttled.sh <<'END'
ip link set lo up
tc qdisc add dev lo root tbf rate ____ burst 256kb latency 50ms
hanji bench send --ranks 2 --engine gloo --placement private --bytes 4MiB --pairs 1 --iters 3 --json
END
if unshare -rn tc qdisc add dev lo root tbf rate 1gbit burst 256kb latency 50ms 2> why_not.txt; then
  unshare -rn sh -e throttled.sh > throttled.json
  measured_ms=$(grep -o '"seconds_median":[0-9.e-]*' throttled.json | awk -F: '{print $2 * 1e3; exit}')
else  # namespaces are not permitted, or ip and tc are missing: the simulator's link instead
  hanji simulate broadcast -p 2 --bandwidth 200Mbit/s --bytes 4MiB --json > throttled.json
  measured_ms=$(awk -F': ' '/"seconds"/ {print $2 * 1e3; exit}' throttled.json)
fi

# GPUs: the link of the table whose rate is nearest to that of the fastest link of a GPU here (hanji topo),
# and what one copies from pinned memory of the host (hanji topo --measure). Without GPUs: none
gpu_link="____"
gpu_copy_gb=____

for name in memory_one_gb memory_all_gb between_cores_gb loopback_gb loopback_is_like predicted_ms measured_ms \
    gpu_link gpu_copy_gb; do
  eval "echo \"$name=\$$name\""
done
