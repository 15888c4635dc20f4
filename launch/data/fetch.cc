#include "launch/data/fetch.h"

#include <curl/curl.h>

#include <array>
#include <exception>
#include <memory>

#include "common/base/error.h"
#include "launch/data/staged_folder.h"
#include "launch/data/transfer_meter.h"

namespace muster {
namespace fs = std::filesystem;
namespace {

struct Cleanup {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};

int64_t SizeOf(const fs::path& path) {
  std::error_code missing;
  const auto size = fs::file_size(path, missing);
  return missing ? 0 : static_cast<int64_t>(size);
}

// Where the bytes of one transfer go.
struct Sink {
  OutputFile file;
  TransferMeter meter;
  int64_t size;   // of the file
  int64_t limit;  // more than this is not the file that was expected
  std::exception_ptr error;
};

// An exception must not pass through libcurl: it is kept, and a short count ends the transfer.
size_t OnBytes(char* bytes, size_t one, size_t count, void* user) {
  Sink& sink = *static_cast<Sink*>(user);
  try {
    sink.size += static_cast<int64_t>(one * count);
    if (sink.size > sink.limit) {
      throw Error(ExitCode::kData, "the server sends more than the expected {} bytes", sink.limit);
    }
    sink.file.Write({reinterpret_cast<const uint8_t*>(bytes), one * count});
    sink.meter.Update(sink.size);
    return one * count;
  } catch (...) {
    sink.error = std::current_exception();
    return 0;
  }
}

enum class Outcome { kDone, kCannotResume, kBrokeOff, kFailed };

Outcome Judge(CURLcode result, long http_status) {
  switch (result) {
    case CURLE_OK:
      return Outcome::kDone;
    case CURLE_RANGE_ERROR:
    case CURLE_BAD_DOWNLOAD_RESUME:
      return Outcome::kCannotResume;
    case CURLE_HTTP_RETURNED_ERROR: {
      constexpr long kRangeNotSatisfiable = 416;
      return http_status == kRangeNotSatisfiable ? Outcome::kCannotResume : Outcome::kFailed;
    }
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_OPERATION_TIMEDOUT:
      return Outcome::kBrokeOff;
    default:
      return Outcome::kFailed;
  }
}

// One transfer. `reason` is set unless it is done.
Outcome FetchOnce(CURL* curl, const std::string& url, const fs::path& path,
                  const FetchOptions& options, std::string& reason) {
  const int64_t start = SizeOf(path);
  Sink sink{.file = OutputFile(path, OutputFile::Mode::kAppend),
            .meter = TransferMeter(options.progress, start, options.bytes),
            .size = start,
            .limit = options.bytes,
            .error = nullptr};
  std::array<char, CURL_ERROR_SIZE> message = {};
  curl_easy_reset(curl);
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "muster");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(options.connect_timeout_s * 1000));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1000L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_timeout_s));
  curl_easy_setopt(curl, CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(start));
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, message.data());
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, OnBytes);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &sink);
  const CURLcode result = curl_easy_perform(curl);
  long http_status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &http_status);
  sink.file.Close();
  if (sink.error) std::rethrow_exception(sink.error);
  reason = message[0] != '\0' ? message.data() : curl_easy_strerror(result);
  return Judge(result, http_status);
}

}  // namespace

void Fetch(const std::string& url, const fs::path& path, const FetchOptions& options) {
  const std::unique_ptr<CURL, Cleanup> curl(curl_easy_init());
  if (curl == nullptr) throw Error(ExitCode::kFailure, "libcurl cannot be started");
  for (int attempt = 1; SizeOf(path) < options.bytes; ++attempt) {
    std::string reason;
    const bool resumes = SizeOf(path) > 0;
    switch (FetchOnce(curl.get(), url, path, options, reason)) {
      case Outcome::kDone:
        return;  // whether it is the right file is for the caller's checksum to say
      case Outcome::kCannotResume:
        if (resumes) {
          fs::remove(path);
          continue;
        }
        break;
      case Outcome::kBrokeOff:
        if (attempt < options.attempts) {
          fmt::print(options.progress, "{}: {}; going on at byte {}\n", url, reason, SizeOf(path));
          continue;
        }
        break;
      case Outcome::kFailed:
        break;
    }
    throw Error(ExitCode::kFailure, "{}: {}", url, reason);
  }
}

}  // namespace muster
