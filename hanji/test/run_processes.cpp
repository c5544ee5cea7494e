#include "hanji/test/run_processes.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <stdexcept>

namespace hanji::test {
namespace {

struct Copy {
  pid_t pid = -1;
  int answer = -1;  ///< Read end of its pipe.
};

[[noreturn]] void answer_and_exit(int pipe, const std::string& answer) {
  const bool written =
      ::write(pipe, answer.data(), answer.size()) == static_cast<ssize_t>(answer.size());
  ::_exit(written ? 0 : 1);
}

Copy start(int index, const std::function<std::string(int)>& body) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::runtime_error("pipe");
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("fork");
  if (pid == 0) {
    ::close(ends[0]);
    try {
      answer_and_exit(ends[1], body(index));
    } catch (const std::exception& error) {
      answer_and_exit(ends[1], std::string("(threw ") + error.what() + ")");
    }
  }
  ::close(ends[1]);
  return {pid, ends[0]};
}

std::string finish(const Copy& copy) {
  std::string answer;
  std::array<char, 4096> piece;
  ssize_t count = 0;
  while ((count = ::read(copy.answer, piece.data(), piece.size())) > 0) {
    answer.append(piece.data(), count);
  }
  ::close(copy.answer);
  int status = 0;
  ::waitpid(copy.pid, &status, 0);
  if (!WIFSIGNALED(status)) return answer;
  return answer + "(killed by signal " + std::to_string(WTERMSIG(status)) + ")";
}

}  // namespace

std::vector<std::string> run_processes(int count, const std::function<std::string(int)>& body) {
  std::vector<Copy> copies;
  for (int i = 0; i < count; ++i) copies.push_back(start(i, body));
  std::vector<std::string> answers;
  for (const Copy& copy : copies) answers.push_back(finish(copy));
  return answers;
}

}  // namespace hanji::test
