#include "common/trace/session.h"

#include <fmt/core.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/trace/recorder.h"
#include "proto/config.pb.h"

namespace muster::trace {
namespace {

using Buffers = std::vector<std::shared_ptr<ThreadBuffer>>;

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quoted + '"';
}

class PartWriter {
 public:
  explicit PartWriter(const SessionOptions& options) : options_(options) {}

  std::string Text(const Buffers& buffers) {
    Metadata(0, "process_name", "name", Quoted(options_.process));
    Metadata(0, "process_labels", "labels",
             Quoted(fmt::format("pid {} on {}", ::getpid(), HostName())));
    Metadata(0, "process_sort_index", "sort_index", std::to_string(options_.number));
    for (size_t i = 0; i < buffers.size(); ++i) Thread(i, *buffers[i]);
    return std::move(text_);
  }

 private:
  void Metadata(int thread, const char* name, const char* key, const std::string& value) {
    text_ += fmt::format(R"({{"ph":"M","pid":{},"tid":{},"ts":0,"name":"{}","args":{{"{}":{}}}}})"
                         "\n",
                         options_.number, thread, name, key, value);
  }

  void Thread(size_t index, const ThreadBuffer& buffer) {
    // Perfetto treats the thread with the number of its process as the main thread.
    const int number =
        index == 0 ? options_.number : 1000 * options_.number + static_cast<int>(index);
    Metadata(number, "thread_name", "name", Quoted(buffer.name));
    Metadata(number, "thread_sort_index", "sort_index", std::to_string(index));
    if (buffer.dropped > 0) {
      Metadata(number, "muster_dropped", "spans", std::to_string(buffer.dropped));
    }
    for (size_t i = 0; i < buffer.size; ++i) {
      if (buffer.events[i].end_ns > 0) Complete(number, buffer.events[i]);
    }
  }

  void Complete(int thread, const Event& event) {
    std::string name = event.kind, arguments;
    const std::string_view about(event.name, event.name_size);
    if (!about.empty()) name.append(" ").append(about);
    const auto argument = [&](const char* key, int64_t value, bool in_name) {
      if (value < 0) return;
      if (in_name && key != name) name.append(" ").append(key);
      if (in_name) name.append(" ").append(std::to_string(value));
      arguments += fmt::format(R"({}"{}":{})", arguments.empty() ? "" : ",", key, value);
    };
    argument("slice", event.tags.slice, about.empty());
    argument("chunk", event.tags.chunk, about.empty());
    argument("rank", event.tags.rank, about.empty());
    argument("step", event.tags.step, name == "step");
    text_ += fmt::format(
        R"({{"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},"cat":{},"args":{{{}}}}})"
        "\n",
        options_.number, thread, static_cast<double>(event.begin_ns) / 1e3,
        static_cast<double>(event.end_ns - event.begin_ns) / 1e3, Quoted(name), Quoted(event.kind),
        arguments);
  }

  const SessionOptions& options_;
  std::string text_;
};

void WriteWhole(const std::string& path, const std::string& text) {
  try {
    WriteFileAtomically(path, text);
  } catch (const Error& error) {
    LogWarning("the part of the trace is lost: {}", error.what());
  }
}

SessionOptions Options(const config::Config& config, const std::string& file,
                       const std::string& process, int number) {
  return {.path = PartPath(config, file),
          .process = process,
          .number = number,
          .first_step = config.run().trace_first_step(),
          .steps = config.run().trace_steps()};
}

}  // namespace

std::string PartPath(const config::Config& config, const std::string& process) {
  const config::Run& run = config.run();
  if (run.trace_file().empty()) return "";
  if (run.dir().empty()) return run.trace_file() + "." + process + ".part";
  return run.dir() + "/trace." + process + ".part";
}

SessionOptions ServerSession(const config::Config& config) {
  return Options(config, "server", "server", 1);
}

SessionOptions WorkerSession(const config::Config& config, uint32_t rank) {
  return Options(config, fmt::format("worker-{}", rank), fmt::format("worker {}", rank),
                 static_cast<int>(rank) + 2);
}

Session::Session(SessionOptions options, const std::string& thread) : options_(std::move(options)) {
  if (options_.path.empty()) return;
  Recorder::Get().Start(options_.first_step, options_.first_step + options_.steps,
                        options_.events_per_thread);
  NameThread(thread);
}

Session::~Session() {
  if (options_.path.empty()) return;
  try {
    WriteWhole(options_.path, PartWriter(options_).Text(Recorder::Get().Stop()));
  } catch (const std::exception& error) {
    LogWarning("cannot write the trace part {}: {}", options_.path, error.what());
  }
}

}  // namespace muster::trace
