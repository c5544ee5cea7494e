# ./dev fuzz [RUNS] [TARGETS]: every parser of foreign bytes, one on each core; sourced by dev.
runs=1000000
case ${1:-} in [0-9]*) runs=$1; shift ;; esac

# An input frees far less than 8 MB: a larger quarantine finds no more, and the default of 256 MB costs up to a quarter.
export ASAN_OPTIONS=quarantine_size_mb=8

# Then reduces its corpus to the fewest inputs that reach as much: what the next run starts from.
fuzz_target() {
  local program=build/fuzz/fuzz/hanji_fuzz_$1 corpus=build/fuzz/corpus/$1 log=build/log/fuzz-$1
  mkdir -p "$corpus"
  "$program" -runs="$runs" -max_len=16384 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/found/$1-" "$corpus" "build/fuzz/seeds/$1" >"$log" 2>&1 ||
    { tail -n 40 "$log" >&2; say "fuzz $1 found an input: build/fuzz/found (all output: $log)"; return 1; }
  rm -rf "$corpus.fewest" && mkdir "$corpus.fewest"
  quietly "fuzz-$1-merge" "$program" -merge=1 -max_len=16384 -rss_limit_mb=2048 "$corpus.fewest" "$corpus" \
    "build/fuzz/seeds/$1"
  rm -rf "$corpus" && mv "$corpus.fewest" "$corpus"
  say "fuzz $1: $(sed -n 's/.*number_of_executed_units: *//p' "$log") runs in" \
    "$(sed -n 's/^Done .* runs in \(.*\) second.*/\1/p' "$log") s, corpus of $(ls "$corpus" | wc -l) inputs"
}

setup
debian_packages $DEBIAN_FUZZ
targets=${*:-$(sed -n 's/^foreach(name \(.*\))$/\1/p' fuzz/CMakeLists.txt)}
configure fuzz
compile fuzz hanji_fuzz_seeds $(printf 'fuzz/hanji_fuzz_%s ' $targets)
./build/fuzz/fuzz/hanji_fuzz_seeds build/fuzz/seeds
mkdir -p build/fuzz/found build/log
declare -A pids
for target in $targets; do
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
  fuzz_target "$target" &
  pids[$target]=$!
done
failed=
for target in $targets; do wait "${pids[$target]}" || failed="$failed $target"; done
[ -z "$failed" ] || die "fuzz found inputs for:$failed"
