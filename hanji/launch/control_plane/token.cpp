#include "hanji/launch/control_plane/token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "hanji/base/fd.h"
#include "hanji/base/secret.h"

namespace hanji::launch {
namespace {

constexpr size_t kMaxLine = 256;
constexpr const char* kHowToMake = "make one: (umask 077; openssl rand -hex 32 > FILE)";

int digit_of(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
  return -1;
}

Status check_owner(int descriptor, const std::filesystem::path& path) {
  struct stat state {};
  if (::fstat(descriptor, &state) != 0) return base::from_errno("stat " + path.string(), errno);
  const bool is_private = S_ISREG(state.st_mode) && state.st_uid == ::geteuid() &&
                          (state.st_mode & (S_IRWXG | S_IRWXO)) == 0;
  if (is_private) return {};
  return base::invalid_argument(fmt::format(
      "the token file {} has mode {:04o} and owner {}: it must be a regular file of user {} that "
      "nobody else may read; chmod 600 it, and if others could read it, {}",
      path.string(), state.st_mode & 07777, state.st_uid, ::geteuid(), kHowToMake));
}

}  // namespace

Result<Token> make_token() {
  Token token;
  HANJI_RETURN_IF_ERROR(base::fill_random(token));
  return token;
}

std::string to_text(const Token& token) {
  std::string text;
  for (const std::byte byte : token) text += fmt::format("{:02x}", static_cast<int>(byte));
  return text;
}

Result<Token> parse_token(std::string_view text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  text = first == text.npos ? "" : text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
  const Status bad =
      base::invalid_argument(fmt::format("the token is not 64 hexadecimal digits; {}", kHowToMake));
  Token token;
  if (text.size() != 2 * token.size()) return bad;
  for (size_t i = 0; i < token.size(); ++i) {
    const int high = digit_of(text[2 * i]);
    const int low = digit_of(text[2 * i + 1]);
    if (high < 0 || low < 0) return bad;
    token[i] = static_cast<std::byte>(high << 4 | low);
  }
  return token;
}

Result<Token> read_token_file(const std::filesystem::path& path) {
  const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.valid()) {
    const Status why = base::from_errno("open the token file " + path.string(), errno);
    return Status(why.code(), why.message() + "; " + kHowToMake);
  }
  HANJI_RETURN_IF_ERROR(check_owner(file.get(), path));
  auto token = read_token(file.get());
  if (!token.ok()) return token.status().at(path.string());
  return token;
}

Result<Token> read_token(int descriptor) {
  std::string line;
  char letter = 0;
  while (line.size() < kMaxLine) {
    const ssize_t got = ::read(descriptor, &letter, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return base::invalid_argument(
          fmt::format("read the token from descriptor {}: {}; open it for reading, as in "
                      "--token-fd {} {}< FILE",
                      descriptor, std::strerror(errno), descriptor, descriptor));
    }
    if (got == 0 || letter == '\n') break;
    line += letter;
  }
  return parse_token(line);
}

}  // namespace hanji::launch
