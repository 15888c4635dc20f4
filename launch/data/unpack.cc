#include "launch/data/unpack.h"

#include <archive.h>
#include <archive_entry.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/error.h"
#include "launch/data/staged_folder.h"

namespace muster {
namespace fs = std::filesystem;
namespace {

// Far more than any of the data sets has: a bound for what a bad archive can write.
constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
constexpr int kMaxFiles = 100;

struct ReadFree {
  void operator()(archive* reader) const { archive_read_free(reader); }
};
using Reader = std::unique_ptr<archive, ReadFree>;

[[noreturn]] void Bad(const fs::path& archive_path, const std::string& what) {
  throw Error(ExitCode::kData, "{}: {}", archive_path.string(), what);
}

void Check(int result, archive* reader, const fs::path& path) {
  if (result == ARCHIVE_OK || result == ARCHIVE_WARN) return;
  const char* reason = archive_error_string(reader);
  Bad(path, fmt::format("not a readable .tar.gz archive: {}", reason ? reason : "unknown error"));
}

// The file's own name if the entry is a regular file directly in `folder`, else throws.
std::string NameOf(archive_entry* entry, const std::string& folder, const fs::path& archive_path) {
  const char* raw = archive_entry_pathname(entry);
  const fs::path path = fs::path(raw == nullptr ? "" : raw).lexically_normal();
  const std::string name = path.filename().string();
  const bool regular =
      archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr;
  if (!regular || path.parent_path() != folder || name.empty() || name == "." || name == "..") {
    Bad(archive_path, fmt::format("expected regular files in {}/, found the entry '{}'", folder,
                                  raw == nullptr ? "" : raw));
  }
  return name;
}

void Extract(archive* reader, archive_entry* entry, const fs::path& archive_path,
             const fs::path& file_path) {
  const int64_t size = archive_entry_size(entry);
  if (size < 0 || size > kMaxFileBytes) {
    Bad(archive_path, fmt::format("'{}' has {} bytes, expected at most {}",
                                  file_path.filename().string(), size, kMaxFileBytes));
  }
  OutputFile file(file_path);
  std::vector<uint8_t> buffer(1 << 18);
  int64_t written = 0;
  for (;;) {
    const la_ssize_t got = archive_read_data(reader, buffer.data(), buffer.size());
    if (got < 0) Check(static_cast<int>(got), reader, archive_path);
    if (got <= 0) break;
    file.Write({buffer.data(), static_cast<size_t>(got)});
    written += got;
  }
  if (written != size) {
    Bad(archive_path, fmt::format("'{}' should have {} bytes, found {}",
                                  file_path.filename().string(), size, written));
  }
  file.Close();
}

}  // namespace

void Unpack(const fs::path& archive_path, const std::string& folder, const fs::path& target) {
  const Reader reader(archive_read_new());
  MUSTER_CHECK(reader != nullptr);
  archive_read_support_filter_gzip(reader.get());
  archive_read_support_format_tar(reader.get());
  constexpr size_t kBlockBytes = 1 << 18;
  Check(archive_read_open_filename(reader.get(), archive_path.c_str(), kBlockBytes), reader.get(),
        archive_path);
  int files = 0;
  for (archive_entry* entry = nullptr;;) {
    const int result = archive_read_next_header(reader.get(), &entry);
    if (result == ARCHIVE_EOF) break;
    Check(result, reader.get(), archive_path);
    if (archive_entry_filetype(entry) == AE_IFDIR) continue;
    if (++files > kMaxFiles) Bad(archive_path, fmt::format("more than {} files", kMaxFiles));
    Extract(reader.get(), entry, archive_path, target / NameOf(entry, folder, archive_path));
  }
}

}  // namespace muster
