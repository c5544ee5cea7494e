#include <iostream>

#include "hanji/cli/collective_options.h"
#include "hanji/cli/verbs.h"
#include "hanji/report/collective_cost.h"
#include "hanji/report/simulation.h"

namespace hanji::cli {
namespace {

std::string simulate(const CollectiveOptions& options, bool as_json) {
  const cost::Question question = options.question();
  if (const auto algorithm = options.named_algorithm()) {
    const cost::Answer answer = cost::answer(*algorithm, question).or_throw();
    return as_json ? report::timeline_json(answer)
                   : report::timeline_text(answer, question.network);
  }
  if (as_json) return report::to_json(report::cost_on_network(question).or_throw());
  return report::simulation_text(question).or_throw();
}

}  // namespace

void add_simulate(Verb command) {
  const Verb verb =
      command.add_verb("simulate", "How long a collective takes on a network, by every algorithm");
  auto options = std::make_shared<CollectiveOptions>();
  auto as_json = std::make_shared<bool>(false);
  options->bandwidth = "1GB/s";
  options->add_to(verb);
  verb.add_option("--bytes", &options->bytes,
                  "of the largest buffer of one rank: 5MB; all shares together where there are any")
      .type_name("SIZE")
      .required();
  verb.add_option("--algorithm", &options->algorithm, "only this one, message by message")
      .type_name("NAME");
  verb.add_flag("--json", as_json.get(), "for programs");
  verb.on_chosen([=] {
    std::cout << simulate(*options, *as_json) << std::flush;
    return 0;
  });
}

}  // namespace hanji::cli
