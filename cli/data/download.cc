#include "cli/data/download.h"

#include <archive.h>
#include <archive_entry.h>
#include <curl/curl.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <vector>

#include "cli/data/data_folder.h"
#include "cli/text/console.h"
#include "cli/text/units.h"
#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/resource_limits.h"
#include "worker/data/cifar10.h"
#include "worker/data/mnist.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// Limits on what a bad archive can write, far above any data set.
constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
constexpr int kMaxFiles = 100;

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Reader = std::unique_ptr<archive, Freed<archive_read_free>>;

[[noreturn]] void Fail(const Reader& reader, const fs::path& path) {
  const char* reason = archive_error_string(reader.get());
  throw Error(ExitCode::kData, "{}: not a readable .tar.gz archive: {}", path.string(),
              reason == nullptr ? "unknown error" : reason);
}

// The name of the file if the entry is a plain file directly in `folder`, otherwise empty.
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

namespace {

std::string NameOf(const PublishedFile& file) {
  return !file.name.empty() ? file.name : file.url.substr(file.url.find_last_of('/') + 1);
}

const char* AlgorithmOf(const PublishedFile& file) {
  constexpr size_t kMd5Digits = 32;
  return file.checksum.size() == kMd5Digits ? "MD5" : "SHA256";
}

std::string ChecksumOf(const fs::path& path, const char* algorithm) {
  const std::unique_ptr<EVP_MD_CTX, Freed<EVP_MD_CTX_free>> context(EVP_MD_CTX_new());
  const EVP_MD* const digest_kind = EVP_get_digestbyname(algorithm);
  if (context == nullptr || digest_kind == nullptr ||
      EVP_DigestInit_ex(context.get(), digest_kind, nullptr) != 1) {
    throw Error(ExitCode::kFailure, "cannot check {}: OpenSSL does not offer {} here (FIPS mode?)",
                path.string(), algorithm);
  }
  std::ifstream file = ReadPlainFile(path);
  std::string buffer(1 << 18, '\0');
  while (file.read(buffer.data(), std::ssize(buffer)) || file.gcount() > 0) {
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(file.gcount()));
  }
  if (!file.eof()) {
    throw Error(ExitCode::kFailure, "{}: cannot read: {}", path.string(), ErrorText(errno));
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &size);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

// Returns how the file differs from the published one, or "".
std::string Difference(const fs::path& path, const PublishedFile& file) {
  const auto bytes = static_cast<int64_t>(fs::file_size(path));
  if (bytes != file.bytes) return fmt::format("expected {} bytes, found {}", file.bytes, bytes);
  const char* const algorithm = AlgorithmOf(file);
  const std::string found = ChecksumOf(path, algorithm);
  if (found == file.checksum) return "";
  return fmt::format("expected {} {}, found {}", algorithm, file.checksum, found);
}

int64_t SizeOf(const fs::path& path) {
  std::error_code missing;
  const auto size = fs::file_size(path, missing);
  return missing ? 0 : static_cast<int64_t>(size);
}

// The file that a transfer appends to.
struct Sink {
  CURL* curl;
  std::FILE* file;
  int64_t bytes, total;  // current and final size of the file
  int error = 0;         // errno of a failed write
  bool terminal = ::isatty(STDERR_FILENO) == 1;
  int64_t shown = 0;  // percent
};

// Updates one line on a terminal; elsewhere prints a line every 10 %.
void ShowProgress(Sink& sink) {
  const int64_t percent = 100 * sink.bytes / sink.total, unit = sink.terminal ? 1 : 10;
  if (percent / unit == sink.shown / unit) return;
  sink.shown = percent;
  curl_off_t speed = 0;
  curl_easy_getinfo(sink.curl, CURLINFO_SPEED_DOWNLOAD_T, &speed);
  fmt::print(stderr, "{:3} % of {:.1f} MB, {:.1f} MB/s{}", percent,
             1e-6 * static_cast<double>(sink.total), 1e-6 * static_cast<double>(speed),
             sink.terminal && percent < 100 ? "  \r" : "\n");
}

// Returning less than `count` ends the transfer with CURLE_WRITE_ERROR.
size_t OnBytes(char* bytes, size_t /*one*/, size_t count, void* user) {
  Sink& sink = *static_cast<Sink*>(user);
  sink.bytes += static_cast<int64_t>(count);
  if (sink.bytes > sink.total) return 0;
  const size_t written = std::fwrite(bytes, 1, count, sink.file);
  if (written < count) sink.error = errno;
  ShowProgress(sink);
  return written;
}

struct Outcome {
  CURLcode code;
  bool cannot_resume;
  std::string reason;
};

// The certificates that servers are checked with. A package's libcurl would look only where Debian
// has them.
std::string CertificatesFile() {
  const char* const given = std::getenv("SSL_CERT_FILE");
  if (given != nullptr && *given != '\0') return given;
  std::error_code ignored;
  for (const char* const path :
       {"/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // RHEL, Fedora
        "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {     // SUSE; Alpine and others
    if (fs::exists(path, ignored)) return path;
  }
  return "";
}

// Appends the missing rest to `part`. Throws Error(kFailure) if the disk fails, and Error(kData) if
// the server sends too much.
Outcome Transfer(const PublishedFile& file, const fs::path& part) {
  const std::unique_ptr<CURL, Freed<curl_easy_cleanup>> curl(curl_easy_init());
  if (curl == nullptr) throw Error(ExitCode::kFailure, "cannot start libcurl");
  UniqueFd appends = OpenPlainFile(part, "a download", O_WRONLY | O_CREAT | O_APPEND);
  const std::unique_ptr<std::FILE, Freed<std::fclose>> out(
      appends.valid() ? ::fdopen(appends.Release(), "a") : nullptr);
  const auto fail = [&](int error) {
    throw Error(ExitCode::kFailure, "{}: cannot write: {}", part.string(), ErrorText(error));
  };
  if (out == nullptr) fail(errno);
  std::setvbuf(out.get(), nullptr, _IONBF, 0);  // an interruption loses nothing
  Sink sink{.curl = curl.get(), .file = out.get(), .bytes = SizeOf(part), .total = file.bytes};
  std::array<char, CURL_ERROR_SIZE> message = {};
  const auto set = [&](CURLoption option, auto value) {
    curl_easy_setopt(curl.get(), option, value);
  };
  set(CURLOPT_URL, file.url.c_str());
  set(CURLOPT_USERAGENT, "muster");
  if (const std::string certificates = CertificatesFile(); !certificates.empty()) {
    set(CURLOPT_CAINFO, certificates.c_str());  // copied
  }
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, 10L);
  set(CURLOPT_FAILONERROR, 1L);
  set(CURLOPT_CONNECTTIMEOUT, 30L);
  set(CURLOPT_LOW_SPEED_LIMIT, 1000L);  // in bytes per second
  set(CURLOPT_LOW_SPEED_TIME, 30L);     // seconds below that speed that end the transfer
  set(CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(sink.bytes));
  set(CURLOPT_ERRORBUFFER, message.data());
  set(CURLOPT_WRITEFUNCTION, OnBytes);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&sink));
  const CURLcode code = curl_easy_perform(curl.get());
  long http_status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &http_status);
  if (sink.error == 0 && ::fsync(::fileno(out.get())) != 0) sink.error = errno;
  if (sink.error != 0) fail(sink.error);
  if (sink.bytes > sink.total) {
    throw Error(ExitCode::kData, "{}: the server sends more than the expected {} bytes", file.url,
                file.bytes);
  }
  constexpr long kRangeNotSatisfiable = 416;
  return {.code = code,
          .cannot_resume = code == CURLE_RANGE_ERROR || code == CURLE_BAD_DOWNLOAD_RESUME ||
                           http_status == kRangeNotSatisfiable,
          .reason = message[0] != '\0' ? message.data() : curl_easy_strerror(code)};
}

// Downloads the rest of `part`. Resumes an interrupted transfer as long as it makes progress; if
// the server cannot resume, requests the whole file.
void Fetch(const PublishedFile& file, const fs::path& part) {
  constexpr int kAttempts = 5;
  for (int attempt = 1; SizeOf(part) < file.bytes; ++attempt) {
    const int64_t have = SizeOf(part);
    fmt::print(stderr, "Downloading {}{}\n", file.url,
               have > 0 ? fmt::format(" from byte {}", have) : "");
    const Outcome outcome = Transfer(file, part);
    if (outcome.code == CURLE_OK) return;  // the caller verifies the checksum
    const bool restarts = outcome.cannot_resume && have > 0;
    if (restarts) fs::remove(part);
    if (attempt == kAttempts || (!restarts && SizeOf(part) == have)) {
      throw Error(ExitCode::kFailure, "{}: {}", file.url, outcome.reason);
    }
  }
}

// Throws if the folder has a different file with the published one's name: it may belong to another
// set or to the user.
void RequirePlace(const PublishedFile& file, const fs::path& dir) {
  const fs::path by_hand = dir / NameOf(file);
  for (const fs::path& path : {by_hand, fs::path(by_hand.string() + ".part")}) {
    (void)OpenPlainFile(path);  // throws if it is not a plain file
  }
  const std::string difference = fs::exists(by_hand) ? Difference(by_hand, file) : "";
  if (difference.empty()) return;
  throw Error(ExitCode::kData,
              "{}: not the published file: {}. Nothing was written. Choose another folder, or move "
              "this file away.",
              by_hand.string(), difference);
}

// Returns the verified published file in `dir`: one that was put there by hand, or a downloaded
// FILE.part. `otherwise` is appended to the error.
fs::path Obtain(const PublishedFile& file, const fs::path& dir, const std::string& otherwise) {
  fs::path by_hand = dir / NameOf(file), part = by_hand.string() + ".part";
  if (fs::exists(by_hand)) return by_hand;
  try {
    Fetch(file, part);
    const std::string difference = Difference(part, file);
    if (difference.empty()) return part;
    fs::remove(part);
    throw Error(ExitCode::kData, "{}: not the published file: {}", file.url, difference);
  } catch (const Error& error) {
    if (SizeOf(part) == 0) fs::remove(part);
    throw Error(
        error.code(),
        "cannot download it: {}. Run this again to resume, or download {} ({} bytes, {} {}) "
        "on another machine, copy it to {} and run this again{}.",
        error.what(), file.url, file.bytes, AlgorithmOf(file), file.checksum, by_hand.string(),
        otherwise);
  }
}

// Whether CIFAR-10 is in `dir`. Throws Error(kData) if something else is in its place.
bool AlreadyThere(const std::string& dir) {
  const fs::path found = ExistingCifar10(dir);
  if (found.empty()) return false;
  std::string problem;
  if (fs::exists(found / kSyntheticNote)) {
    problem = fmt::format("a procedural data set ({}) is already there", kSyntheticNote);
  } else {
    try {
      (void)OpenCifar10(dir);
      return true;
    } catch (const Error& error) {
      problem = fmt::format("not a complete CIFAR-10 data set: {}", error.what());
    }
  }
  throw Error(ExitCode::kData,
              "{}: {}. Nothing was written. Move it away, or choose another directory.",
              found.string(), problem);
}

void PrintDone(const std::string& what, const Datasets& sets) {
  PrintResult(fmt::format("{}, {} training and {} test images.", what, sets.train->size(),
                          sets.test->size()));
}

}  // namespace

PublishedFile Cifar10Archive() {
  return {.url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
          .checksum = "c32a1d4ab5d03f1284b67883e8d87530",
          .bytes = 170052171};
}

std::vector<PublishedFile> MnistFiles() {
  const std::string mirror = "https://ossci-datasets.s3.amazonaws.com/mnist/";
  return {{mirror + "train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9912422},
          {mirror + "train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28881},
          {mirror + "t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1648877},
          {mirror + "t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4542}};
}

std::vector<PublishedFile> FashionMnistFiles() {
  const std::string source =
      "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/";
  return {{source + "train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26421880},
          {source + "train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29515},
          {source + "t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4422102},
          {source + "t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5148}};
}

void DownloadCifar10(const std::string& dir, const PublishedFile& archive) {
  const UniqueFd lock = LockDataFolder(dir);
  const fs::path target = fs::path(dir) / kCifar10Folder;
  if (AlreadyThere(dir)) {
    PrintResult(fmt::format("{}: CIFAR-10 is already there.", FindCifar10(dir)));
    return;
  }
  RequirePlace(archive, dir);
  const fs::path packed =
      Obtain(archive, dir, fmt::format("; or make a stand-in with `muster data synth {}`", dir));
  Datasets sets;
  StageFolder(target, [&](const fs::path& staging) {
    Unpack(packed, kCifar10Folder, staging);
    sets = OpenCifar10(staging.string());
  });
  if (packed.extension() == ".part") fs::remove(packed);
  PrintDone(target.string() + ": CIFAR-10", sets);
}

void DownloadMnist(const std::string& dir, const std::vector<PublishedFile>& files,
                   const std::string& name) {
  const UniqueFd lock = LockDataFolder(dir);
  for (const PublishedFile& file : files) {
    const fs::path plain = (fs::path(dir) / NameOf(file)).replace_extension();
    if (fs::exists(plain)) {
      throw Error(
          ExitCode::kData,
          "{}: this file would be read instead of {}. Nothing was written. Move it away, or "
          "choose another directory.",
          plain.string(), NameOf(file));
    }
    RequirePlace(file, dir);
  }
  for (const PublishedFile& file : files) {
    const fs::path found = Obtain(file, dir, "");
    if (found.extension() == ".part") fs::rename(found, fs::path(dir) / NameOf(file));
  }
  SyncFolder(dir);
  PrintDone(dir + ": " + name, OpenMnist(dir));
}

const std::vector<PublishedWeights>& ImagenetWeights() {
  // torchvision's files are pickled, which may run code. timm publishes the same numbers as
  // safetensors, in revisions that do not change.
  const auto of = [](const std::string& network, const char* revision, const char* sha256,
                     int64_t bytes) {
    return PublishedFile{.url = fmt::format("https://huggingface.co/timm/{}.tv_in1k/resolve/{}/"
                                            "model.safetensors",
                                            network, revision),
                         .checksum = sha256,
                         .bytes = bytes,
                         .name = network + ".safetensors"};
  };
  static const std::vector<PublishedWeights> kAll = {
      {"resnet18",
       of("resnet18", "bbd144b3e5565108aad885f145491d11bc6ce807",
          "694f673df6520a3158624e8a89af086f59923ee4cd7436fe5bc3bc71d295ad81", 46807446)},
      {"resnet34",
       of("resnet34", "1b7b21cca82ff974d341713f777bf740c2db38c4",
          "0bb82595a564991a9d424708b33f5d843f5aaed7f6c0886ff10849ff97022235", 87278522)},
      {"resnet50",
       of("resnet50", "78f3ecfdb38e06d9b8397f662e7ab8fee96026fa",
          "5d061a3c593d795bfe682d9b152bafbcf550579873492def3515b46db1189888", 102469840)}};
  return kAll;
}

void DownloadWeights(const std::string& dir, const PublishedWeights& weights) {
  const UniqueFd lock = LockDataFolder(dir);
  const fs::path target = fs::path(dir) / NameOf(weights.file);
  RequirePlace(weights.file, dir);
  const fs::path found = Obtain(weights.file, dir, "");
  if (found.extension() == ".part") fs::rename(found, target);
  SyncFolder(dir);
  PrintResult(fmt::format("{}: torchvision's {} for ImageNet, {}.", target.string(),
                          weights.network, FormatBytes(static_cast<double>(weights.file.bytes))));
}

}  // namespace muster
