#include "common/base/records.h"

#include <array>
#include <bit>
#include <cstring>
#include <fstream>

#include "common/base/file.h"

namespace muster {
namespace {

template <typename T>
std::string LittleEndian(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

template <typename T>
T NumberAt(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

constexpr uint32_t kPolynomial = 0x82f63b78;  // 0x1edc6f41 with its bits reversed

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

}  // namespace

std::string FrameRecord(std::string_view record) {
  const std::string length = LittleEndian<uint64_t>(record.size());
  std::string frame = length + LittleEndian(MaskedCrc32c(length));
  frame += record;
  return frame + LittleEndian(MaskedCrc32c(record));
}

RecordsEnd ForEachRecord(std::istream& file, uint64_t from, const VisitRecord& visit,
                         uint64_t most) {
  constexpr uint64_t kHead = 8 + 4, kFrame = kHead + 4;
  RecordsEnd end{.at = from};
  file.clear();
  if (!file.seekg(0, std::ios::end)) return end;
  // Lengths are limited to the rest of the file, so that a corrupt length allocates nothing.
  const auto size = static_cast<uint64_t>(file.tellg());
  file.seekg(static_cast<std::streamoff>(from));
  std::string head(kHead, '\0'), body;
  while (file.read(head.data(), static_cast<std::streamsize>(head.size()))) {
    const auto length = NumberAt<uint64_t>(head, 0);
    end.damaged = NumberAt<uint32_t>(head, 8) != MaskedCrc32c(head.substr(0, 8)) || length > most;
    if (end.damaged || end.at + kFrame + length > size) return end;
    body.resize(length + 4);  // including the checksum
    if (!file.read(body.data(), static_cast<std::streamsize>(body.size()))) return end;
    const uint64_t begin = end.at;
    end.at += length + kFrame;
    const std::string_view record(body.data(), length);
    if (NumberAt<uint32_t>(body, length) != MaskedCrc32c(record)) continue;
    if (!visit(record, begin)) return end;
  }
  return end;
}

RecordsEnd ForEachRecord(const std::string& path, uint64_t from, const VisitRecord& visit,
                         uint64_t most) {
  std::ifstream file = ReadPlainFile(path);
  return file ? ForEachRecord(file, from, visit, most) : RecordsEnd{.at = from};
}

// Processing one byte at a time is fast enough for a few kilobytes per interval.
uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

uint32_t MaskedCrc32c(std::string_view bytes) { return std::rotr(Crc32c(bytes), 15) + 0xa282ead8; }

}  // namespace muster
