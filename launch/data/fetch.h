// One file from a URL, resumed where an earlier try stopped. The only user of libcurl.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

namespace muster {

struct FetchOptions {
  int64_t bytes = 0;  // the size that the file must have
  int attempts = 3;
  double connect_timeout_s = 30;
  double stall_timeout_s = 30;  // with less than 1 kB/s
  std::FILE* progress = stderr;
};

// Appends to `path` what it lacks of the file at `url` (http, https, file; redirects followed, the
// usual proxy variables heard). Where the server cannot resume, it begins again. A transfer that
// breaks off is tried again, `attempts` times in all. Throws Error(kFailure) for the network and
// the disk and Error(kData) for a file longer than `bytes`; what has arrived is kept.
void Fetch(const std::string& url, const std::filesystem::path& path, const FetchOptions& options);

}  // namespace muster
