// Files of framed records (TensorFlow's TFRecord). All numbers are little-endian:
//
//   uint64 length · uint32 masked CRC-32C of the length · record · uint32 masked CRC-32C of the
//   record
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

namespace muster {

std::string FrameRecord(std::string_view record);

// Where reading a file stopped.
struct RecordsEnd {
  uint64_t at = 0;       // end of the last whole record
  bool damaged = false;  // followed by something other than a (possibly incomplete) record
};

inline constexpr uint64_t kMostRecordBytes = uint64_t{1} << 30;

// Reads records from byte `from` on. visit(record, its position) returns whether to continue.
// Skips records with a wrong checksum. One with more than `most` bytes is damage.
using VisitRecord = std::function<bool(std::string_view record, uint64_t at)>;
RecordsEnd ForEachRecord(std::istream& file, uint64_t from, const VisitRecord& visit,
                         uint64_t most = kMostRecordBytes);
// A file that cannot be opened has no records. Throws Error(kData) if it is not a plain file.
RecordsEnd ForEachRecord(const std::string& path, uint64_t from, const VisitRecord& visit,
                         uint64_t most = kMostRecordBytes);

// CRC-32C (Castagnoli; RFC 3720, appendix B.4).
uint32_t Crc32c(std::string_view bytes);

// The form in which TFRecord stores a CRC, because a CRC of data that contains CRCs is unreliable.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace muster
