#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "hanji/base/status.h"

namespace hanji::base {

using Digest = std::array<std::byte, 32>;

/// HMAC-SHA256 of the parts, one after another. Source: RFC 2104, RFC 4231.
Digest hmac_sha256(std::span<const std::byte> key,
                   std::initializer_list<std::span<const std::byte>> parts);

/// Compares in a time that does not depend on where two secrets of one length differ.
bool equal_secrets(std::span<const std::byte> left, std::span<const std::byte> right);

/// Bytes that nobody can foretell.
Status fill_random(std::span<std::byte> bytes);

}  // namespace hanji::base
