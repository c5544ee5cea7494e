#include "hanji/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "hanji/base/atomic_file.h"

namespace hanji::base {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBufferBytes = 256 * 1024;
constexpr size_t kReadBytes = 64 * 1024;

Status file_error(const char* what, const fs::path& path, int error) {
  return from_errno(std::string(what) + " " + path.string(), error);
}

Status to_status(const char* what, const fs::path& path, const std::error_code& error) {
  return error ? file_error(what, path, error.value()) : Status();
}

Result<Fd> open_file(const fs::path& path, int flags) {
  Fd fd;
  do {
    fd = Fd(::open(path.c_str(), flags | O_CLOEXEC, 0666));
  } while (!fd.valid() && errno == EINTR);
  if (!fd.valid()) return file_error("open", path, errno);
  return fd;
}

Status write_all(int fd, std::string_view text, const fs::path& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) return file_error("write", path, errno);
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Status sync_fd(int fd, const fs::path& path) {
  if (::fsync(fd) == 0) return {};
  return file_error("fsync", path, errno);
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

template <class Iterator>
Result<std::vector<fs::path>> collect_files(const fs::path& folder) {
  std::error_code error;
  Iterator it(folder, error);
  if (error) return to_status("list", folder, error);
  std::vector<fs::path> files;
  while (it != Iterator()) {
    std::error_code gone;  // a file that vanishes meanwhile is not listed
    if (it->is_regular_file(gone)) files.push_back(it->path());
    it.increment(error);
    if (error) return to_status("list", folder, error);
  }
  std::sort(files.begin(), files.end(),
            [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  return files;
}

}  // namespace

Result<std::string> read_file(const fs::path& path, size_t max_bytes) {
  HANJI_ASSIGN_OR_RETURN(const Fd fd, open_file(path, O_RDONLY));
  std::string content;
  while (true) {
    const size_t old_size = content.size();
    content.resize(old_size + kReadBytes);
    const ssize_t got = ::read(fd.get(), content.data() + old_size, kReadBytes);
    if (got < 0 && errno != EINTR) return file_error("read", path, errno);
    content.resize(old_size + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (content.size() > max_bytes) {
      return invalid_argument("read " + path.string() + ": longer than the " +
                              std::to_string(max_bytes) + " bytes that such a file may have");
    }
    if (got == 0) return content;
  }
}

Status write_file_atomic(const fs::path& path, std::string_view content) {
  HANJI_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  HANJI_RETURN_IF_ERROR(file.write_at(0, std::as_bytes(std::span(content))));
  return file.commit();
}

Result<MappedFile> MappedFile::open(const fs::path& path) {
  HANJI_ASSIGN_OR_RETURN(const Fd fd, open_file(path, O_RDONLY | O_NONBLOCK));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return file_error("stat", path, errno);
  if (!S_ISREG(info.st_mode))
    return invalid_argument(path.string() + ": no regular file; name a file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return MappedFile({});
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return file_error("map", path, errno);
  return MappedFile({static_cast<const std::byte*>(data), size});
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Result<OutputFile> OutputFile::open(const fs::path& path, Mode mode) {
  int flags = O_WRONLY | O_CREAT;
  if (mode == Mode::kTruncate) flags |= O_TRUNC;
  if (mode == Mode::kAppend) flags |= O_APPEND;
  if (mode == Mode::kNew) flags |= O_EXCL;
  HANJI_ASSIGN_OR_RETURN(Fd fd, open_file(path, flags));
  return OutputFile(std::move(fd), path);
}

OutputFile::~OutputFile() { static_cast<void>(close()); }

Status OutputFile::append(std::string_view text) {
  num_bytes_ += static_cast<int64_t>(text.size());
  if (text.size() < kBufferBytes) buffer_.append(text);
  if (text.size() >= kBufferBytes || buffer_.size() >= kBufferBytes) {
    HANJI_RETURN_IF_ERROR(flush());
  }
  if (text.size() >= kBufferBytes) return write_through(text);
  return status_;
}

Status OutputFile::append(std::span<const std::byte> bytes) {
  return append(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

Status OutputFile::write_through(std::string_view text) {
  if (status_.ok() && !fd_.valid())
    status_ = invalid_argument("write " + path_.string() + ": closed");
  if (status_.ok()) status_ = write_all(fd_.get(), text, path_);
  return status_;
}

Status OutputFile::flush() {
  if (!buffer_.empty()) static_cast<void>(write_through(buffer_));
  buffer_.clear();
  return status_;
}

Status OutputFile::sync() {
  HANJI_RETURN_IF_ERROR(flush());
  status_ = sync_fd(fd_.get(), path_);
  return status_;
}

Status OutputFile::close() {
  static_cast<void>(flush());
  fd_.reset();
  return status_;
}

Result<std::vector<fs::path>> list_files(const fs::path& folder, Recurse recurse) {
  if (recurse == Recurse::kYes) return collect_files<fs::recursive_directory_iterator>(folder);
  return collect_files<fs::directory_iterator>(folder);
}

Status make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return to_status("make folder", path, error);
}

Status make_private_directory(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return file_error("make folder", path, errno);
  }
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return file_error("stat", path, errno);
  const bool is_private =
      S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & 077) == 0;
  if (is_private) return {};
  return invalid_argument(
      "folder " + path.string() +
      ": not a folder that only this user may enter; remove it, or set another");
}

Status remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return to_status("remove", path, error);
}

Status rename_and_sync(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return file_error("rename", from.string() + " to " + to.string(), errno);
  }
  HANJI_RETURN_IF_ERROR(fsync_directory(folder_of(to)));
  if (folder_of(from) == folder_of(to)) return {};
  return fsync_directory(folder_of(from));
}

Status fsync_directory(const fs::path& folder) {
  HANJI_ASSIGN_OR_RETURN(const Fd fd, open_file(folder, O_RDONLY | O_DIRECTORY));
  return sync_fd(fd.get(), folder);
}

Result<int64_t> free_bytes(const fs::path& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return file_error("free space of", path, errno);
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

Result<fs::path> executable_path() {
  std::error_code error;
  fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) return to_status("read link", "/proc/self/exe", error);
  return path;
}

}  // namespace hanji::base
