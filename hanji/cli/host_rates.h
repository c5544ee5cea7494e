#pragma once

#include <string>

#include "hanji/cli/command_line.h"
#include "hanji/cli/option_mistakes.h"
#include "hanji/cost/linear_region.h"
#include "hanji/cost/rates.h"
#include "hanji/cost/simulate.h"
#include "hanji/topology/machine.h"

namespace hanji::cli {

/// What this host does with `ranks` ranks, and how that is known.
struct HostRates {
  cost::Rates rates;
  std::string source;  ///< When costs were timed, and what would be closer.
};

/// Rates as measured in a moment, and costs as comm::use_or_fit() has them. Errors: throws Error.
HostRates host_rates(const topology::Machine& machine, int ranks);

/// How long a call takes, and in which words that is known.
struct Links {
  cost::SecondsOf seconds_of;
  std::string source;
};

/// Declares --bandwidth and --latency of a verb that prices calls on this host where they are left out.
void add_link_options(const Verb& verb, std::string& bandwidth, std::string& latency);

/// Adds what is wrong with --bandwidth and --latency, which may be empty.
void check_links(const std::string& bandwidth, const std::string& latency,
                 OptionMistakes& mistakes);

struct NamedNetwork {
  cost::Network network;
  std::string source;
};

/// Links of a rate such as "25GB/s" and a latency such as "10us", or none.
/// Errors  throws Error that names each wrong flag.
NamedNetwork network_of(const std::string& bandwidth, const std::string& latency);
/// How long calls of so many ranks take on them. Errors: as network_of().
Links network_links(const std::string& bandwidth, const std::string& latency, int ranks);

}  // namespace hanji::cli
