#pragma once

#include <filesystem>

#include "hanji/base/status.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace hanji::checkpoint {

/// Saves a module of your own, and its optimizer, in one safetensors file: parameters and buffers
/// under their dotted names, the optimizer's state as "optimizer.exp_avg.NAME" and so on, the
/// learning rate of group g as "optimizer.lr.g". What is the same on all ranks is saved by one.
///
/// Order   a file of that name is replaced by one rename after everything is on the disk: a killed
///         or failed save leaves the old one.
/// Errors  kUnsupported: an optimizer other than AdamW, Adam and SGD, or a tensor that files do not
///         speak, by name; kInvalidArgument: an optimizer of parameters that are not the module's;
///         kOutOfMemory on a full disk.
Status save(const std::filesystem::path& path, const torch::nn::Module& module);
Status save(const std::filesystem::path& path, const torch::nn::Module& module,
            const torch::optim::Optimizer& optimizer);

/// Loads what save() wrote into a module, and an optimizer, of the same form: all of it, or nothing.
/// The next step is, bit for bit, the one that would have followed save(). Without an optimizer, a
/// state that the file holds is left aside. A file that others wrote has no checksums to compare.
///
/// Errors  kNotFound; kCorrupt for changed bytes, naming the tensor; kMismatch, listing every
///         tensor that is missing, left over, or of another type or shape, or the other optimizer.
Status load(const std::filesystem::path& path, torch::nn::Module& module);
Status load(const std::filesystem::path& path, torch::nn::Module& module,
            torch::optim::Optimizer& optimizer);

}  // namespace hanji::checkpoint
