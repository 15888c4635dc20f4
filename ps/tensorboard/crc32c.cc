#include "ps/tensorboard/crc32c.h"

#include <array>
#include <bit>

namespace muster {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // 0x1edc6f41, its bits reversed

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

// A byte at a time: some kilobytes in an interval need no more.
uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

uint32_t MaskedCrc32c(std::string_view bytes) { return std::rotr(Crc32c(bytes), 15) + 0xa282ead8; }

}  // namespace muster
