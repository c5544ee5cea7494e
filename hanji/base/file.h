#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/fd.h"

namespace hanji::base {

/// The whole content. Errors: kNotFound; kInvalidArgument if longer than `max_bytes`.
Result<std::string> read_file(const std::filesystem::path& path,
                              size_t max_bytes = size_t{1} << 30);

/// Replaces `path` so that a reader, or the disk after a power cut, has the old or the new content
/// whole: temporary file in the same folder, fsync, rename, fsync of the folder.
/// Errors  kOutOfMemory on a full disk; the old file is untouched and the temporary one removed.
Status write_file_atomic(const std::filesystem::path& path, std::string_view content);

/// A file's bytes, mapped read-only. The file must not be cut while it is mapped.
class MappedFile {
 public:
  /// Errors  kNotFound; kInvalidArgument if it is no regular file. An empty file has no bytes.
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

/// Appends to a file through a buffer of 256 KiB.
///
/// Errors  the first failure stays: every later call returns it, close() too, so one check at the
///         end is enough. kOutOfMemory on a full disk.
class OutputFile {
 public:
  enum class Mode { kTruncate, kAppend, kNew };  ///< kNew refuses a file that exists.
  static Result<OutputFile> open(const std::filesystem::path& path, Mode mode = Mode::kTruncate);
  OutputFile(OutputFile&&) = default;
  OutputFile& operator=(OutputFile&&) = delete;
  /// Hands the buffer to the kernel; call close() to learn whether that worked.
  ~OutputFile();

  Status append(std::string_view text);
  Status append(std::span<const std::byte> bytes);
  /// Hands the buffer to the kernel.
  Status flush();
  /// flush(), then waits until the disk has it.
  Status sync();
  Status close();
  /// Bytes appended since open.
  int64_t num_bytes() const { return num_bytes_; }

 private:
  OutputFile(Fd fd, std::filesystem::path path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Status write_through(std::string_view text);

  Fd fd_;
  std::filesystem::path path_;
  std::string buffer_;
  int64_t num_bytes_ = 0;
  Status status_;
};

enum class Recurse : bool { kNo, kYes };

/// The regular files of a folder (links to files count, links to folders are not followed), sorted
/// by the bytes of their paths.
Result<std::vector<std::filesystem::path>> list_files(const std::filesystem::path& folder,
                                                      Recurse recurse = Recurse::kNo);

/// Makes the folder and its parents; fine if it is there.
Status make_directories(const std::filesystem::path& path);
/// Makes a folder that only this user may enter, or checks that the one there is such a folder.
Status make_private_directory(const std::filesystem::path& path);
/// Removes a file, or a folder with all in it, never through a link. Fine if nothing is there.
Status remove_tree(const std::filesystem::path& path);
/// Renames, replacing a file, and waits until the disk has the new name.
Status rename_and_sync(const std::filesystem::path& from, const std::filesystem::path& to);
/// Waits until the disk has the names in this folder.
Status fsync_directory(const std::filesystem::path& folder);
/// Bytes that this user may still write on the file system of `path`.
Result<int64_t> free_bytes(const std::filesystem::path& path);
/// The file of the running program.
Result<std::filesystem::path> executable_path();

}  // namespace hanji::base
