# ./dev fuzz [SECONDS] [TARGETS]: every parser of foreign bytes; sourced by dev.
seconds=60
case ${1:-} in [0-9]*) seconds=$1; shift ;; esac
setup
debian_packages $DEBIAN_FUZZ
[ -e build/fuzz/build.ninja ] || { say "configuring build/fuzz"; quietly configure-fuzz cmake --preset fuzz; }
targets=${*:-config control control_plane history json manifest override plan safetensors step_list tokens vocabulary}
compile fuzz hanji_fuzz_seeds $(printf 'fuzz/hanji_fuzz_%s ' $targets)
./build/fuzz/fuzz/hanji_fuzz_seeds build/fuzz/seeds
mkdir -p build/fuzz/found build/log
for target in $targets; do
  mkdir -p "build/fuzz/corpus/$target"
  "./build/fuzz/fuzz/hanji_fuzz_$target" -max_total_time="$seconds" -max_len=4096 -timeout=10 \
    -rss_limit_mb=2048 -artifact_prefix="build/fuzz/found/$target-" -print_final_stats=1 \
    "build/fuzz/corpus/$target" "build/fuzz/seeds/$target" >"build/log/fuzz-$target" 2>&1 ||
    { tail -n 40 "build/log/fuzz-$target" >&2
      die "fuzz $target found an input: build/fuzz/found (all output: build/log/fuzz-$target)"; }
  say "fuzz $target: $(sed -n 's/.*number_of_executed_units: //p' "build/log/fuzz-$target") runs"
done
