# ./dev fuzz [RUNS] [TARGETS]: every parser of foreign bytes; sourced by dev.
runs=1000000
case ${1:-} in [0-9]*) runs=$1; shift ;; esac
setup
debian_packages $DEBIAN_FUZZ
targets=${*:-$(sed -n 's/^foreach(name \(.*\))$/\1/p' fuzz/CMakeLists.txt)}
configure fuzz
compile fuzz hanji_fuzz_seeds $(printf 'fuzz/hanji_fuzz_%s ' $targets)
./build/fuzz/fuzz/hanji_fuzz_seeds build/fuzz/seeds
mkdir -p build/fuzz/found build/log
failed=
for target in $targets; do
  program=build/fuzz/fuzz/hanji_fuzz_$target corpus=build/fuzz/corpus/$target log=build/log/fuzz-$target
  mkdir -p "$corpus"
  "$program" -runs="$runs" -max_len=16384 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/found/$target-" "$corpus" "build/fuzz/seeds/$target" >"$log" 2>&1 ||
    { failed="$failed $target"; tail -n 40 "$log" >&2
      say "fuzz $target found an input: build/fuzz/found (all output: $log)"; continue; }
  # What the next run starts from: the fewest inputs that reach as much.
  rm -rf "$corpus.fewest" && mkdir "$corpus.fewest"
  quietly "fuzz-$target-merge" "$program" -merge=1 -max_len=16384 -rss_limit_mb=2048 "$corpus.fewest" "$corpus" \
    "build/fuzz/seeds/$target"
  rm -rf "$corpus" && mv "$corpus.fewest" "$corpus"
  say "fuzz $target: $(sed -n 's/.*number_of_executed_units: *//p' "$log") runs in" \
    "$(sed -n 's/^Done .* runs in \(.*\) second.*/\1/p' "$log") s, corpus of $(ls "$corpus" | wc -l) inputs"
done
[ -z "$failed" ] || die "fuzz found inputs for:$failed"
