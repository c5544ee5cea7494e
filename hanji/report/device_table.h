#pragma once

#include <span>
#include <string>

#include "hanji/base/terminal.h"
#include "hanji/plan/device_spec.h"

namespace hanji::report {

/// What the rates of a device mean for a step of training.
struct DeviceMeaning {
  double ridge = 0;   ///< FLOP for each byte of memory at which products stop waiting for it.
  double square = 0;  ///< n of the n x n by n x n product of two-byte elements that has the ridge.
  double parameters = 0;      ///< Number whose states fill the memory: mixed precision, Adam.
  double memory_seconds = 0;  ///< Reading all memory once; no update of all of it is faster.
  double link_tokens =
      0;  ///< Tokens of a rank whose backward hides an all_reduce of bf16 gradients
          ///< over the links to peers; 0: their rate is not known.
  double network_tokens = 0;  ///< The same over the network of each device.
  double host_seconds = 0;  ///< All memory over the link to the host, as a checkpoint of it takes.
};

/// Source  roofline: Williams et al., CACM 52(4), 2009. Backward: 4 FLOP for each parameter and token; a ring sends
///         up to 2 x 2 bytes of each parameter's gradient.
DeviceMeaning meaning_of(const plan::DeviceSpec& device);

/// A column for each device: memory, rates for each dtype, links, what they mean; then the sources.
std::string device_table(std::span<const plan::DeviceSpec> devices,
                         int columns = base::kTerminalColumns);
/// An array with an object for each device; null where no figure is known.
std::string device_json(std::span<const plan::DeviceSpec> devices);

}  // namespace hanji::report
