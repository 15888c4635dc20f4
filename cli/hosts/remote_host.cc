#include "cli/hosts/remote_host.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <filesystem>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/resource_limits.h"
#include "common/base/signals.h"
#include "common/base/text.h"

namespace muster {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostMessageBytes = 1 << 20;
constexpr int kPipeBytes = 1 << 20;  // room for the config and many commands
constexpr int kCloseMs = 2000;
constexpr int kNameMs = 5000;  // for ssh to print its configuration
constexpr int kProbeSeconds = 5;

struct Pipe {
  UniqueFd read, write;
};

Pipe MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(ExitCode::kFailure, "cannot create a pipe: {}", ErrorText(errno));
  }
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::string SshProgram(const SshCommand& ssh) {
  const std::string& name = ssh.words[0];
  std::string path = name.find('/') == std::string::npos ? ProgramInPath(name) : std::string(name);
  if (!path.empty() && ::access(path.c_str(), X_OK) == 0) return path;
  throw Error(ExitCode::kFailure,
              "{}: there is no such program{}; other hosts are reached with ssh: install it, or "
              "name it with --ssh COMMAND",
              name, path.empty() ? " in PATH" : "");
}

}  // namespace

SshCommand PatientSsh(SshCommand ssh, double silence_s) {
  ssh.most_unanswered = static_cast<int>(std::ceil(silence_s / kProbeSeconds)) + 1;
  return ssh;
}

std::vector<std::string> ParseSsh(const std::string& text) {
  const std::optional<std::vector<std::string>> words = SplitCommandLine(text);
  if (!words || words->empty()) {
    throw Error(ExitCode::kUsage, "--ssh {}: expected a command such as \"ssh -p 2222\", got {}",
                Shown(text), words ? "nothing" : "a quote that is not closed");
  }
  return *words;
}

std::vector<std::string> SshArguments(const SshCommand& ssh, const std::string& host) {
  std::vector<std::string> words{ssh.words.begin() + 1, ssh.words.end()};
  words.insert(words.end(), {"-T", "-x", "-a"});  // no terminal, no forwarding
  for (const std::string& option :
       {std::string("BatchMode=yes"), std::string("ConnectTimeout=10"),
        fmt::format("ServerAliveInterval={}", kProbeSeconds),
        fmt::format("ServerAliveCountMax={}", ssh.most_unanswered),
        std::string("ControlMaster=no"),  // a master connection would outlive the launch
        std::string("ClearAllForwardings=yes"), std::string("RemoteCommand=none")}) {
    words.insert(words.end(), {"-o", option});
  }
  // An older version has no command "host", but says which version it is.
  const std::string muster = ShellWord(ssh.muster);
  words.insert(words.end(),
               {"--", host, fmt::format("{} --version && exec {} host", muster, muster)});
  return words;
}

std::string SshHostName(const SshCommand& ssh, const std::string& host) {
  Pipe output = MakePipe(), errors = MakePipe();
  std::vector<std::string> words{ssh.words.begin() + 1, ssh.words.end()};
  words.insert(words.end(), {"-G", "--", host});
  ChildProcess child({.program = SshProgram(ssh),
                      .arguments = words,
                      .output_fd = output.write.get(),
                      .error_fd = errors.write.get()});
  output.write.Reset();
  LineReader lines(std::move(output.read), kMostMessageBytes);
  std::string name = host.substr(host.rfind('@') + 1);
  pollfd event{.fd = lines.fd(), .events = POLLIN};
  while (!lines.at_end() && ::poll(&event, 1, kNameMs) > 0) {
    lines.Read([&](const std::string& line) {
      constexpr std::string_view kKey = "hostname ";
      if (line.starts_with(kKey)) name = line.substr(kKey.size());
    });
  }
  return name;
}

RemoteHost::RemoteHost(const SshCommand& ssh, const std::string& host) : name_(host) {
  ::signal(SIGPIPE, SIG_IGN);  // writing to an ssh that has ended returns an error instead
  Pipe input = MakePipe(), output = MakePipe(), errors = MakePipe();
  ::fcntl(input.write.get(), F_SETPIPE_SZ, kPipeBytes);
  ssh_ = std::make_unique<ChildProcess>(ChildOptions{.program = SshProgram(ssh),
                                                     .arguments = SshArguments(ssh, host),
                                                     .input_fd = input.read.get(),
                                                     .output_fd = output.write.get(),
                                                     .error_fd = errors.write.get(),
                                                     // The launcher ends the job in good order,
                                                     // which needs the connection.
                                                     .ignores_stops = true});
  input_ = std::move(input.write);
  output_ = LineReader(std::move(output.read), kMostMessageBytes);
  errors_ = LineReader(std::move(errors.read), kMostMessageBytes);
}

RemoteHost::~RemoteHost() {
  Close();
  for (int waited = 0; waited < kCloseMs && !end_; waited += 10) {
    Read([](const Json&) {}, [](const std::string&) {});  // it might wait for a reader
    Look();
    if (!end_) ::usleep(10'000);
  }
}

// A config may be longer than the pipe, so this waits for ssh, which reads at once.
void RemoteHost::Send(const Json& message) {
  const std::string line = JsonText(message) + "\n";
  ::fcntl(input_.get(), F_SETFL, ::fcntl(input_.get(), F_GETFL) | O_NONBLOCK);
  for (size_t at = 0; at < line.size() && input_.valid();) {
    const ssize_t written = ::write(input_.get(), line.data() + at, line.size() - at);
    if (written > 0) at += static_cast<size_t>(written);
    if (written >= 0 || errno == EINTR) continue;
    pollfd event{.fd = input_.get(), .events = POLLOUT};
    if (errno == EAGAIN && ::poll(&event, 1, kCloseMs) > 0) continue;
    GiveUp();
  }
}

void RemoteHost::GiveUp() {
  given_up_ = true;
  Close();
  ssh_->Signal(SIGKILL);
}

void RemoteHost::Read(const std::function<void(const Json&)>& on_message,
                      const std::function<void(const std::string&)>& on_text) {
  output_.Read([&](const std::string& line) { OnOutput(line, on_message, on_text); });
  errors_.Read([&](const std::string& line) {
    std::string text = line;
    if (text.ends_with('\r')) text.pop_back();
    if (text.empty()) return;
    last_words_ = OneLine(text, 500);
    if (last_words_.ends_with('.')) last_words_.pop_back();
    on_text(text);
  });
}

// The other host's shell may say something before the agent does.
void RemoteHost::OnOutput(const std::string& line,
                          const std::function<void(const Json&)>& on_message,
                          const std::function<void(const std::string&)>& on_text) {
  const std::vector<std::string> version =
      version_.empty() ? FirstMatch("^muster ([0-9][^ ]*)$", line) : std::vector<std::string>();
  if (!version.empty()) {
    version_ = version[1];
    return;
  }
  const Json message = line.starts_with('{') ? ParseJson(line) : Json();
  if (message.is_object()) return on_message(message);
  on_text(line);
}

void RemoteHost::Look() {
  if (!end_) end_ = ssh_->CheckEnd();
}

std::string RemoteHost::Trouble() const {
  const std::string how = !end_ || given_up_ ? "gets no answer"
                          : end_->by_signal  ? "was killed by " + SignalName(end_->value)
                                             : fmt::format("ended with exit code {}", end_->value);
  return fmt::format("ssh {}{}{}", how, last_words_.empty() ? "" : ": ", last_words_);
}

}  // namespace muster
