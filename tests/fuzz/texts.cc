// Small files: the end of a log, printed on a terminal; class names, one each or none; whether a
// folder is a run; a job's token.
#include <sys/stat.h>

#include "cli/process/log_tail.h"
#include "common/base/text.h"
#include "common/checkpoint/run_mark.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/link/protocol.h"
#include "proto/config.pb.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace fuzz_texts {

void CheckLine(const std::string& line) {
  Require(line.size() <= 3 * 1000, "a long line");  // each byte may have become U+FFFD
  Require(ValidUtf8(line) == line, "a line is not UTF-8");
  for (size_t i = 0; i < line.size(); ++i) {
    const auto byte = static_cast<unsigned char>(line[i]);
    Require(byte >= 0x20 && byte != 0x7f, "a line with a control character");
    Require(byte != 0xc2 || static_cast<unsigned char>(line[i + 1]) >= 0xa0,
            "a line with a control character of two bytes");
  }
}

void CheckLog(const std::string& text) {
  static const Folder folder;
  const std::string path = folder.Write("worker-0.log", text);
  const std::vector<std::string> lines = LastLines(path, 5);
  Require(lines.size() <= 5, "more lines than requested");
  for (const std::string& line : lines) CheckLine(line);
  CheckLine(LastError(path));
}

void CheckClassNames(const std::string& text) {
  static const Folder folder;
  folder.Write("batches.meta.txt", text);
  config::Data data;
  data.set_format(config::Data::CIFAR10);
  data.set_dir(folder.path());
  ResolveFromFiles(data);
  Require(data.class_names_size() == 0 || data.class_names_size() == DataClasses(data),
          "only some classes have names");
  for (const std::string& name : data.class_names()) {
    Require(!name.empty() && ValidUtf8(name) == name, "a name is not text");
  }
}

void CheckRunMark(const std::string& text) {
  static const Folder folder;
  folder.Write("run/run_id", text);
  const std::string id = RunIdIn(folder / "run");
  Require(id.empty() || (id == text && IsRunId(id)), "an invalid run ID");
}

void CheckToken(const std::string& text) {
  static const Folder folder;
  const std::string path = folder.Write("token", text);
  Require(::chmod(path.c_str(), 0600) == 0, "a mode");
  OrError(path, [&] {
    const std::string token = ReadToken(path);
    Require(token.size() == 32 && token.find_first_not_of("0123456789abcdef") == token.npos,
            "a token has invalid characters");
    Require(text.find(token) != text.npos, "the token differs");
  });
}

}  // namespace fuzz_texts
}  // namespace muster::fuzz

// The first byte selects the kind.
FUZZ_TARGET(texts) {
  using namespace muster::fuzz;
  using namespace muster::fuzz::fuzz_texts;
  SilenceLogs();
  Input input(data, size);
  const uint8_t which = input.Byte();
  const std::string text = input.Rest();
  switch (which % 4) {
    case 0:
      CheckLog(text);
      break;
    case 1:
      CheckClassNames(text);
      break;
    case 3:
      CheckToken(text);
      break;
    default:
      CheckRunMark(text);
  }
  return 0;
}
