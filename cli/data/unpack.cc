#include "cli/data/unpack.h"

#include <archive.h>
#include <archive_entry.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/atomic_file.h"
#include "common/base/error.h"

namespace muster {
namespace fs = std::filesystem;
namespace {

// Far more than any data set has: they bound what a bad archive can write.
constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
constexpr int kMaxFiles = 100;

struct ReadFree {
  void operator()(archive* reader) const { archive_read_free(reader); }
};
using Reader = std::unique_ptr<archive, ReadFree>;

[[noreturn]] void Fail(const Reader& reader, const fs::path& path) {
  const char* reason = archive_error_string(reader.get());
  throw Error(ExitCode::kData, "{}: not a readable .tar.gz archive: {}", path.string(),
              reason == nullptr ? "unknown error" : reason);
}

// The file's own name if the entry is a plain file directly in `folder`, else empty.
fs::path NameOf(archive_entry* entry, const std::string& folder) {
  const char* raw = archive_entry_pathname(entry);
  const fs::path path = fs::path(raw == nullptr ? "" : raw).lexically_normal();
  const fs::path name = path.filename();
  const bool plain = archive_entry_filetype(entry) == AE_IFREG &&
                     archive_entry_hardlink(entry) == nullptr && path.parent_path() == folder;
  return plain && name != "." && name != ".." ? name : fs::path();
}

}  // namespace

void Unpack(const fs::path& path, const std::string& folder, const fs::path& target) {
  const Reader reader(archive_read_new());
  MUSTER_CHECK(reader != nullptr);
  archive_read_support_filter_gzip(reader.get());
  archive_read_support_format_tar(reader.get());
  std::vector<std::byte> buffer(1 << 18);
  if (archive_read_open_filename(reader.get(), path.c_str(), buffer.size()) != ARCHIVE_OK) {
    Fail(reader, path);
  }
  int files = 0;
  for (archive_entry* entry = nullptr;;) {
    const int result = archive_read_next_header(reader.get(), &entry);
    if (result == ARCHIVE_EOF) break;
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN) Fail(reader, path);
    if (archive_entry_filetype(entry) == AE_IFDIR) continue;
    const fs::path name = NameOf(entry, folder);
    if (name.empty() || archive_entry_size(entry) > kMaxFileBytes || ++files > kMaxFiles) {
      const char* raw = archive_entry_pathname(entry);
      throw Error(ExitCode::kData,
                  "{}: expected at most {} plain files in {}/, of at most 1 GiB each, found the "
                  "entry '{}'",
                  path.string(), kMaxFiles, folder, raw == nullptr ? "" : raw);
    }
    AtomicFile file((target / name).string());
    la_ssize_t got;
    while ((got = archive_read_data(reader.get(), buffer.data(), buffer.size())) > 0) {
      file.Write(std::span(buffer).first(static_cast<size_t>(got)));
    }
    if (got < 0) Fail(reader, path);
    file.Commit();
  }
}

}  // namespace muster
