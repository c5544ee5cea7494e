// hanji_protocol_model [small|large] [MAX_STATES] [FIRST]: explores the protocol of the flag lines,
// from the scenario numbered FIRST, and prints what it saw. A scenario without a remark below it was
// seen whole: every order of its ranks' steps and of their stores.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "hanji/base/clock.h"
#include "hanji/test/model/protocol.h"

using namespace hanji::test::model;

int main(int argc, char** argv) {
  const bool large = argc > 1 && std::string_view(argv[1]) == "large";
  const int64_t max_states = argc > 2 ? std::stoll(argv[2]) : 2'000'000;
  int64_t states = 0;
  int num_wrong = 0;
  int num_cut = 0;
  fmt::print("{:<58} {:>10} {:>12} {:>6} {:>7}\n", "scenario", "states", "transitions", "depth",
             "seconds");
  const std::vector<Scenario> scenarios = large ? large_scenarios() : small_scenarios();
  for (size_t i = argc > 3 ? std::stoul(argv[3]) : 0; i < scenarios.size(); ++i) {
    const Scenario& scenario = scenarios[i];
    const int64_t start = hanji::base::now_ns();
    const Outcome outcome = explore(scenario, max_states);
    const double seconds = static_cast<double>(hanji::base::now_ns() - start) * 1e-9;
    fmt::print("{:<58} {:>10} {:>12} {:>6} {:>7.2f}\n", describe(scenario), outcome.num_states,
               outcome.num_transitions, outcome.depth, seconds);
    states += outcome.num_states;
    if (!outcome.violation.empty()) fmt::print("{}\n", outcome.violation);
    num_wrong += !outcome.violation.empty();
    if (!outcome.complete && outcome.violation.empty()) {
      ++num_cut;
      fmt::print("  cut off: there are more states; nothing wrong in these\n");
    }
    std::fflush(stdout);
  }
  fmt::print("{} states; {} scenarios wrong, {} cut off\n", states, num_wrong, num_cut);
  return num_wrong == 0 ? 0 : 1;
}
