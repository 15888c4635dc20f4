#include "common/base/pattern.h"

#include <regex.h>

#include "common/base/error.h"

namespace muster {

std::vector<std::string> Search(const char* pattern, const std::string& text) {
  regex_t compiled;
  MUSTER_CHECK(::regcomp(&compiled, pattern, REG_EXTENDED) == 0);
  std::vector<regmatch_t> places(compiled.re_nsub + 1);
  const bool found = ::regexec(&compiled, text.c_str(), places.size(), places.data(), 0) == 0;
  ::regfree(&compiled);
  std::vector<std::string> parts;
  if (!found) return parts;
  for (const regmatch_t& place : places) {
    parts.push_back(place.rm_so < 0 ? "" : text.substr(place.rm_so, place.rm_eo - place.rm_so));
  }
  return parts;
}

}  // namespace muster
