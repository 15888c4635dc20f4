#include "common/checkpoint/state_file.h"

#include <xxhash.h>

#include <cstring>
#include <string_view>

#include "common/base/error.h"
#include "common/base/version.h"

namespace muster {
namespace {

constexpr std::string_view kMagic = "MUSTERCK";

// The header of the file, little-endian like everything in a checkpoint.
struct Head {
  uint32_t format = 0;
  uint32_t format_xxh3 = 0;  // the lower half of the hash of the file up to here
  uint64_t bytes = 0;        // the size of the body
  uint64_t xxh3 = 0;         // the hash of the body, seeded with the format
};
static_assert(sizeof(Head) == 24);

uint64_t ChecksumOf(std::string_view body, uint32_t format) {
  return XXH3_64bits_withSeed(body.data(), body.size(), format);
}

// Checksum of the format version. It distinguishes a newer version from a damaged one.
uint32_t ChecksumOf(uint32_t format) {
  std::string begin(kMagic);
  begin.append(reinterpret_cast<const char*>(&format), sizeof format);
  return static_cast<uint32_t>(XXH3_64bits(begin.data(), begin.size()));
}

}  // namespace

std::string StateFileBytes(const checkpoint::State& state) {
  const std::string body = state.SerializeAsString();
  const Head head{.format = kCheckpointFormat,
                  .format_xxh3 = ChecksumOf(kCheckpointFormat),
                  .bytes = body.size(),
                  .xxh3 = ChecksumOf(body, kCheckpointFormat)};
  std::string text(kMagic);
  text.append(reinterpret_cast<const char*>(&head), sizeof head);
  return text + body;
}

checkpoint::State ParseStateFile(const std::string& file, const std::string& bytes) {
  const auto fail = [&]<typename... Args>(fmt::format_string<Args...> text,
                                          Args&&... args) -> void {
    throw Error(ExitCode::kData, "{}: {}", file, fmt::format(text, std::forward<Args>(args)...));
  };
  const size_t begin = kMagic.size() + sizeof(Head);
  if (bytes.size() < begin)
    fail("is truncated: expected at least {} bytes, got {}", begin, bytes.size());
  if (!bytes.starts_with(kMagic))
    fail("is not the state of a checkpoint: expected it to begin with {}", kMagic);
  Head head;
  std::memcpy(&head, bytes.data() + kMagic.size(), sizeof head);
  if (head.format_xxh3 != ChecksumOf(head.format)) fail("is damaged in its first bytes");
  if (head.format > kCheckpointFormat) {
    throw Error(ExitCode::kUsage,
                "{}: has version {} of the format, but this muster ({}) only reads up to {}: use a "
                "newer muster",
                file, head.format, kVersion, kCheckpointFormat);
  }
  const std::string_view body = std::string_view(bytes).substr(begin);
  if (head.bytes != body.size())
    fail("is damaged: expected {} bytes after its header, got {}", head.bytes, body.size());
  const uint64_t got = ChecksumOf(body, head.format);
  if (got != head.xxh3) fail("is damaged: expected checksum {:016x}, got {:016x}", head.xxh3, got);
  checkpoint::State state;
  if (!state.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    fail("is not the state of a checkpoint, although its checksum is correct");
  }
  return state;
}

}  // namespace muster
