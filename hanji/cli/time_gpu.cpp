#include <sys/prctl.h>

#include <csignal>
#include <iostream>
#include <iterator>
#include <string>

#include "hanji/cli/verbs.h"
#include "hanji/train/gpu_times.h"

namespace hanji::cli {

void add_time_gpu(Verb command) {
  const Verb verb = command.add_verb(std::string(train::kTimeGpuVerb), "");
  verb.on_chosen([] {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody reads the times of a launcher that is gone
    const std::string plan(std::istreambuf_iterator<char>(std::cin), {});
    std::cout << train::time_gpu_job(plan) << std::flush;
    return 0;
  });
}

}  // namespace hanji::cli
