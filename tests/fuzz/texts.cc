// Small files that are shown or asked for in passing: the end of a log, which is for a terminal;
// the names of a set's classes, one for each or none; which run a folder is of, or keeps things of;
// a job's token.
#include <sys/stat.h>

#include "common/base/utf8.h"
#include "common/checkpoint/run_mark.h"
#include "common/checkpoint/saved_for.h"
#include "common/config/class_names.h"
#include "common/config/config.h"
#include "common/link/protocol.h"
#include "launch/process/log_tail.h"
#include "proto/config.pb.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

void CheckLine(const std::string& line) {
  Require(line.size() <= 3 * 1000, "a long line");  // each byte may have become U+FFFD
  Require(ValidUtf8(line) == line, "a line that is no UTF-8");
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
  Require(lines.size() <= 5, "more lines than were asked for");
  for (const std::string& line : lines) CheckLine(line);
  CheckLine(LastError(path));
}

void CheckClassNames(const std::string& text) {
  static const Folder folder;
  folder.Write("batches.meta.txt", text);
  config::Data data;
  data.set_format(config::Data::CIFAR10);
  data.set_dir(folder.path());
  ResolveClassNames(data);
  Require(data.class_names_size() == 0 || data.class_names_size() == DataClasses(data),
          "some classes have a name, and others none");
  for (const std::string& name : data.class_names()) {
    Require(!name.empty() && ValidUtf8(name) == name, "a name that is no text");
  }
}

void CheckRunMark(const std::string& text) {
  static const Folder folder;
  folder.Write("run/checkpoints/run_id", text);
  const std::string id = RunIdOf(folder / "run");
  Require(id.empty() || (id == text && IsRunId(id)), "a mark that is none");
  Require(RunIdIn(folder / "run").empty(), "a mark of a folder that has none");
}

// A folder's mark, and the id and the config of a run that may have marked it.
void CheckSavedFor(Input input) {
  static const Folder folder;
  static const std::string run = folder / "run", kept = folder / "kept";
  const std::string mark = input.Text();
  folder.Write(std::string("kept/") + kSavedForFile, mark);
  folder.Write(std::string("run/") + kRunIdFile, input.Text());
  const std::string config = input.Rest();
  folder.Write("run/config.txtpb", config);
  const std::optional<SavedFor> said = SavedForIn(kept);
  if (said) {
    Require(IsRunId(said->run_id) && said->run_dir.starts_with('/'), "a mark of nobody");
    Require(said->run_id + "\n" + said->run_dir + "\n" == mark, "another mark than was written");
  }
  Require(said || !KeepsThingsOf(run, kept), "things of a run without a mark of it");
  const std::string id = RunIdOf(run);
  Require(id.empty() || !KeepsThingsOf(run, kept) || said->run_id == id, "things of another run");
  (void)PlacesInConfigOf(run);
}

void CheckToken(const std::string& text) {
  static const Folder folder;
  const std::string path = folder.Write("token", text);
  Require(::chmod(path.c_str(), 0600) == 0, "a mode");
  OrError(path, [&] {
    const std::string token = ReadToken(path);
    Require(token.size() == 32 && token.find_first_not_of("0123456789abcdef") == token.npos,
            "a token of other characters");
    Require(text.find(token) != text.npos, "not the token that was written");
  });
}

}  // namespace
}  // namespace muster::fuzz

// The first byte says which of them.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::fuzz;
  SilenceLogs();
  Input input(data, size);
  const uint8_t which = input.Byte();
  if (which % 5 == 3) {
    CheckSavedFor(input);
    return 0;
  }
  const std::string text = input.Rest();
  switch (which % 5) {
    case 0:
      CheckLog(text);
      break;
    case 1:
      CheckClassNames(text);
      break;
    case 4:
      CheckToken(text);
      break;
    default:
      CheckRunMark(text);
  }
  return 0;
}
