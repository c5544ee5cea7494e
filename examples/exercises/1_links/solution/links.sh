#!/bin/sh
# Exercise 1: fill in each `____`, then: sh links.sh        GB = 10^9 bytes, one way
set -eu
export LC_ALL=C

# Memory: what one core copies, what all cores copy at once together, and what one core copies that the
# farthest other core has written.  Command: hanji topo --measure
hanji topo --measure --json > topo.json
rates() { awk -F': ' "/\"$1\"/ {here = 1} /\"$2\"/ {exit} here && /\"bytes_per_second\"/ {print \$2 / 1e9}" topo.json; }
memory_one_gb=$(rates copies measured_gpu | head -n 1)
memory_all_gb=$(rates copies measured_gpu | tail -n 1)
between_cores_gb=$(rates pairs copies | tail -n 1)

# A socket of the loopback device: 8 MiB from one rank to another; the column algbw.
# Command: hanji bench send --ranks 2 --engine gloo --placement private --bytes 8MiB --pairs 1
loopback_gb=$(hanji bench send --ranks 2 --engine gloo --placement private --bytes 8MiB --pairs 1 --json |
  sed -n 's/.*"algbw_bytes_per_second":\([0-9.]*\).*/\1/p' | awk '{print $1 / 1e9}')
# The link of `hanji topo --nominal` with the nearest rate one way (the whole name, as in the first column):
like() { hanji topo --nominal | awk -v rate="$1" '/^$/ {exit} NR > 1 {for (i = 1; $(i + 1) != "GB/s"; ++i); name = $1
    for (k = 2; k < i; ++k) name = name " " $k; d = $i > rate ? $i / rate : rate / $i
    if (!best || d < best) {best = d; row = name}} END {print row}'; }
loopback_is_like=$(like "$loopback_gb")

# A network of 200 Mbit/s. Predict first what a message of 4 MiB takes, in milliseconds:
predicted_ms=$(awk 'BEGIN {print 4 * 1024 * 1024 * 8 / 200e6 * 1e3}')
# Then throttle the loopback device of a network namespace of our own, and measure.
cat > throttled.sh <<'END'
ip link set lo up
tc qdisc add dev lo root tbf rate 200mbit burst 256kb latency 50ms
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
gpu_rate=$(awk -F': ' '/"gpu_direct"/ {exit} /"from"/ {gpu = 0} /"(from|to)": "gpu:/ {gpu = 1}
  gpu && /"bytes_per_second"/ && $2 / 1e9 > most {most = $2 / 1e9} END {print most}' topo.json)
gpu_link=$([ -z "$gpu_rate" ] && echo none || like "$gpu_rate")
gpu_copy_gb=$(awk -F': ' '/"host_bytes_per_second"/ {print $2 / 1e9}' topo.json | grep . || echo none)

for name in memory_one_gb memory_all_gb between_cores_gb loopback_gb loopback_is_like predicted_ms measured_ms \
    gpu_link gpu_copy_gb; do
  eval "echo \"$name=\$$name\""
done
