// Text from anywhere (file names, other hosts) for where only UTF-8 may stand.
#pragma once

#include <string>
#include <string_view>

namespace muster {

// `text` with U+FFFD for each byte that is not part of a UTF-8 character (RFC 3629).
std::string ValidUtf8(std::string_view text);

}  // namespace muster
