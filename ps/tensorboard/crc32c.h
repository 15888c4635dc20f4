// The checksum of TensorBoard's records: CRC-32C (Castagnoli; RFC 3720, appendix B.4).
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

uint32_t Crc32c(std::string_view bytes);

// As it is stored: a CRC over bytes that hold CRCs would otherwise be no check of them.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace muster
