// libmuster_client.so: the program's end of common/program/messages.h. It depends on nothing but
// the C library, so it fits into any process: protobuf and ZeroMQ are in the helper process.
#include "client/muster.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "client/job.h"
#include "common/program/messages.h"

using namespace muster::program;

namespace {

constexpr size_t kAlignFloats = 16;
constexpr int kMostDimensions = 64;
constexpr size_t kPushFloats = 64 << 10;  // 256 KiB
// Changes the fingerprint, so that a process whose samples have another order is refused.
constexpr uint64_t kInOrder = 0x9e3779b97f4a7c15;

// Returns false if the body is too short.
bool ReadWork(const std::string& body, muster_work& work, std::vector<int64_t>& samples) {
  Work given{};
  if (body.size() < sizeof given) return false;
  std::memcpy(&given, body.data(), sizeof given);
  samples.resize((body.size() - sizeof given) / sizeof(int64_t));
  std::memcpy(samples.data(), body.data() + sizeof given, samples.size() * sizeof(int64_t));
  constexpr muster_kind kKinds[] = {MUSTER_SLICE,      MUSTER_STEP_END,
                                    MUSTER_TEST_BLOCK, MUSTER_VALIDATION_BLOCK,
                                    MUSTER_UPDATE,     MUSTER_SAVE};
  work = {.kind = kKinds[static_cast<uint32_t>(given.kind)],
          .step = given.step,
          .epoch = given.epoch,
          .index = given.index,
          .count = static_cast<int64_t>(samples.size()),
          .samples = samples.data(),
          .batch = given.batch,
          .seed = given.seed,
          .loss_scale = given.loss_scale};
  return true;
}

// Python's atexit calls muster_fail when the exit code is decided already.
bool has_failed = false;

void FailIfTheJobFailed(int code, void*) {
  if (!has_failed || code != EXIT_SUCCESS) return;
  std::fflush(nullptr);
  ::_exit(EXIT_FAILURE);
}

__attribute__((constructor)) void Load() { ::on_exit(&FailIfTheJobFailed, nullptr); }

}  // namespace

extern "C" {

muster_job* muster_create(void) { return new (std::nothrow) muster_job; }

void muster_destroy(muster_job* job) { delete job; }

const char* muster_error(const muster_job* job) { return job->error.c_str(); }

int muster_add_variable(muster_job* job, const char* name, const int64_t* shape, int dimensions,
                        const muster_variable_options* options) {
  const auto refuse = [&](const char* why) {
    job->Fail(MUSTER_USAGE, "variable %zu \"%s\": %s", job->variables.size(),
              name == nullptr ? "" : name, why);
    return -1;
  };
  if (job->memory != nullptr) return refuse("add all variables before their memory is used");
  if (name == nullptr || *name == '\0') return refuse("expected a name");
  if (dimensions < 0 || dimensions > kMostDimensions) return refuse("expected 0 to 64 dimensions");
  for (const Described& other : job->variables) {
    if (other.name == name) return refuse("this name is taken");
  }
  size_t count = 1;
  for (int i = 0; i < dimensions; ++i) {
    constexpr size_t kMost = size_t{1} << 36;
    if (shape[i] <= 0 || static_cast<size_t>(shape[i]) > kMost / count)
      return refuse("expected positive dimensions and at most 2^36 elements");
    count *= static_cast<size_t>(shape[i]);
  }
  Described variable{
      .name = name, .shape = {shape, shape + dimensions}, .offset = job->floats, .count = count};
  variable.settings.dimensions = static_cast<uint32_t>(dimensions);
  variable.settings.learning_rate_multiplier = 1;
  if (options != nullptr && options->has_weight_decay != 0) {
    variable.settings.has_weight_decay = 1;
    variable.settings.weight_decay = options->weight_decay;
  }
  if (options != nullptr && options->has_learning_rate_multiplier != 0)
    variable.settings.learning_rate_multiplier = options->learning_rate_multiplier;
  variable.settings.averaged = options != nullptr && options->is_averaged != 0;
  job->floats += (count + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
  job->variables.push_back(std::move(variable));
  return static_cast<int>(job->variables.size()) - 1;
}

float* muster_weights(muster_job* job, int variable) {
  if (variable < 0 || static_cast<size_t>(variable) >= job->variables.size()) {
    job->Fail(MUSTER_USAGE, "there is no variable %d", variable);
    return nullptr;
  }
  if (!job->Allocate()) return nullptr;
  return job->memory + job->variables[static_cast<size_t>(variable)].offset;
}

float* muster_gradient(muster_job* job, int variable) {
  float* const weights = muster_weights(job, variable);
  return weights == nullptr ? nullptr : weights + job->floats;
}

int muster_join(muster_job* job, int64_t training_samples, int64_t validation_samples,
                int64_t test_samples) {
  if (job->has_joined || job->is_over) {
    return job->Fail(MUSTER_USAGE, "muster_join: this job has joined already");
  }
  if (training_samples <= 0 || validation_samples < 0 || test_samples < 0) {
    return job->Fail(MUSTER_USAGE,
                     "muster_join: expected more than 0 training samples and at least 0 others");
  }
  if (!job->Allocate()) return job->variables.empty() ? MUSTER_USAGE : MUSTER_FAILURE;
  std::string why;
  if (const int code = job->helper.Start(why); code != MUSTER_OK)
    return job->Fail(code, "%s", why.c_str());
  for (const Described& variable : job->variables) {
    std::string body(reinterpret_cast<const char*>(&variable.settings), sizeof variable.settings);
    body.append(reinterpret_cast<const char*>(variable.shape.data()),
                variable.shape.size() * sizeof(int64_t));
    body += variable.name;
    if (const int code = job->SendText(Kind::kVariable, body); code != MUSTER_OK) return code;
  }
  if (!job->optimizer.empty()) {
    const int code = job->SendText(Kind::kOptimizer, job->optimizer);
    if (code != MUSTER_OK) return code;
  }
  if (!job->arithmetic.empty()) {
    const int code = job->SendText(Kind::kArithmetic, job->arithmetic);
    if (code != MUSTER_OK) return code;
  }
  const Join join{.version = kVersion,
                  .pid = static_cast<uint32_t>(::getpid()),
                  .fingerprint = job->fingerprint ^ (job->in_order ? kInOrder : 0),
                  .train_samples = training_samples,
                  .validation_samples = validation_samples,
                  .test_samples = test_samples,
                  .batch = job->batch,
                  .epochs = job->epochs,
                  .drop_last = job->drop_last,
                  .in_order = job->in_order,
                  .loss_scaling = job->loss_scaling,
                  .unused = 0};
  if (const int code = job->Send(Kind::kJoin, &join, sizeof join, job->memory_fd);
      code != MUSTER_OK) {
    return code;
  }
  Kind kind{};
  std::string body;
  if (const int code = job->Receive(kind, body); code != MUSTER_OK) return code;
  if (kind == Kind::kEnd) return job->ReadEnd(body);
  if (kind != Kind::kJoined || body.size() != sizeof job->joined) return job->Lost();
  std::memcpy(&job->joined, body.data(), sizeof job->joined);
  const auto state_bytes = static_cast<size_t>(job->joined.state_bytes);
  while (job->state.size() < state_bytes) {
    if (const int code = job->Receive(kind, body); code != MUSTER_OK) return code;
    if (kind == Kind::kEnd) return job->ReadEnd(body);
    if (kind != Kind::kRestored || body.empty()) return job->Lost();
    job->state += body;
  }
  job->has_joined = true;
  return MUSTER_OK;
}

int64_t muster_rank(const muster_job* job) { return job->joined.rank; }
int64_t muster_first_step(const muster_job* job) { return job->joined.first_step; }
int64_t muster_total_steps(const muster_job* job) { return job->joined.total_steps; }
int64_t muster_steps_per_epoch(const muster_job* job) { return job->joined.steps_per_epoch; }
int64_t muster_slices(const muster_job* job) { return job->joined.slices; }

int muster_next(muster_job* job, double seconds, muster_work* work) {
  if (!job->has_joined) return job->Fail(MUSTER_USAGE, "muster_next: call muster_join first");
  if (job->is_over) return job->Fail(MUSTER_USAGE, "muster_next: the job is over");
  if (job->at_work) {
    return job->Fail(MUSTER_USAGE, "muster_next: complete the current work with muster_done first");
  }
  if (job->asked_value) return job->Fail(MUSTER_USAGE, "muster_next: repeat muster_ask first");
  if (!job->asked) {
    if (const int code = job->Send(Kind::kNext, nullptr, 0); code != MUSTER_OK) return code;
    job->asked = true;
  }
  if (!job->helper.Await(seconds)) return MUSTER_AGAIN;
  Kind kind{};
  std::string body;
  if (const int code = job->Receive(kind, body); code != MUSTER_OK) return code;
  job->asked = false;
  *work = {};
  if (kind == Kind::kEnd) {
    const int code = job->ReadEnd(body);
    work->kind = MUSTER_END;
    work->step = job->steps;
    return code;
  }
  if (kind != Kind::kWork || !ReadWork(body, *work, job->samples)) return job->Lost();
  job->at_work = work->kind != MUSTER_STEP_END;
  job->has_reported = false;
  job->weight = std::numeric_limits<double>::quiet_NaN();
  job->scalars.clear();
  job->work = *work;
  return MUSTER_OK;
}

int muster_plan(muster_job* job, int64_t step, int64_t slice, muster_work* work) {
  if (const int code = job->RequireWork("muster_plan"); code != MUSTER_OK) return code;
  if (step < 0 || step >= job->joined.total_steps || slice < 0 || slice >= job->joined.slices) {
    return job->Fail(MUSTER_USAGE, "muster_plan: there is no slice %lld of step %lld",
                     static_cast<long long>(slice), static_cast<long long>(step));
  }
  const Planned planned{.step = step, .index = slice};
  if (const int code = job->Send(Kind::kPlanned, &planned, sizeof planned); code != MUSTER_OK)
    return code;
  Kind kind{};
  std::string body;
  if (const int code = job->Receive(kind, body); code != MUSTER_OK) return code;
  if (kind == Kind::kEnd) return job->ReadEnd(body);
  if (kind != Kind::kSamples || !ReadWork(body, *work, job->planned)) return job->Lost();
  return MUSTER_OK;
}

int muster_report(muster_job* job, double loss) {
  if (const int code = job->RequireWork("muster_report"); code != MUSTER_OK) return code;
  if (job->has_reported) return job->Fail(MUSTER_USAGE, "muster_report: called twice");
  job->has_reported = true;
  const Loss body{.loss = loss, .learning_rate = job->learning_rate, .weight = job->weight};
  return job->Send(Kind::kLoss, &body, sizeof body);
}

int muster_set_weight(muster_job* job, double weight) {
  if (const int code = job->RequireWork("muster_set_weight"); code != MUSTER_OK) return code;
  if (job->work.kind != MUSTER_SLICE || job->has_reported)
    return job->Fail(MUSTER_USAGE, "muster_set_weight: only in a slice, before muster_report");
  if (!std::isfinite(weight) || weight < 0)
    return job->Fail(MUSTER_USAGE, "muster_set_weight: expected 0 or more, got %g", weight);
  job->weight = weight;
  return MUSTER_OK;
}

int muster_add_scalar(muster_job* job, const char* name, double sum) {
  if (const int code = job->RequireWork("muster_add_scalar"); code != MUSTER_OK) return code;
  if (name == nullptr) name = "";
  const auto refuse = [&](const char* why) {
    return job->Fail(MUSTER_USAGE, "muster_add_scalar \"%.80s\": %s", name, why);
  };
  if (job->has_reported) return refuse("call it before muster_report");
  const size_t bytes = std::strlen(name);
  const size_t allowed =
      std::strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-");
  if (bytes == 0 || bytes > kMostScalarName || allowed < bytes) {
    return refuse("expected a name of 1 to 64 characters of A-Z a-z 0-9 _ . / -");
  }
  for (const std::string& other : job->scalars) {
    if (other == name) return refuse("called twice for this slice or block");
  }
  if (job->scalars.size() == kMostScalars) {
    return refuse("expected at most 32 names for a slice or block");
  }
  job->scalars.emplace_back(name);
  std::string body(reinterpret_cast<const char*>(&sum), sizeof sum);
  body += name;
  return job->SendText(Kind::kScalar, body);
}

int muster_push(muster_job* job, int variable) {
  if (const int code = job->RequireWork("muster_push"); code != MUSTER_OK) return code;
  if (job->work.kind != MUSTER_SLICE || !job->has_reported) {
    return job->Fail(MUSTER_USAGE, "muster_push: only in a slice, after muster_report");
  }
  if (variable < 0 || static_cast<size_t>(variable) >= job->variables.size()) {
    return job->Fail(MUSTER_USAGE, "muster_push: there is no variable %d", variable);
  }
  // Many small variables go in one frame.
  const Described& described = job->variables[static_cast<size_t>(variable)];
  job->pushed.push_back(static_cast<uint64_t>(variable));
  job->pushed_floats += described.count;
  if (job->pushed_floats < kPushFloats) return MUSTER_OK;
  const std::vector<uint64_t> numbers = std::exchange(job->pushed, {});
  job->pushed_floats = 0;
  return job->Send(Kind::kPushed, numbers.data(), numbers.size() * sizeof(uint64_t));
}

const void* muster_state(const muster_job* job, size_t* bytes) {
  *bytes = job->state.size();
  return job->state.empty() ? nullptr : job->state.data();
}

int muster_save(muster_job* job, const void* state, size_t bytes) {
  if (!job->at_work || job->work.kind != MUSTER_SAVE) {
    return job->Fail(MUSTER_USAGE, "muster_save: only in work of kind MUSTER_SAVE");
  }
  constexpr size_t kMost = 4 << 20;
  const auto* at = static_cast<const char*>(state);
  while (bytes > 0) {
    const size_t count = bytes < kMost ? bytes : kMost;
    if (const int code = job->Send(Kind::kState, at, count); code != MUSTER_OK) return code;
    at += count;
    bytes -= count;
  }
  return MUSTER_OK;
}

int muster_done(muster_job* job) {
  if (!job->at_work || (job->asked_value && job->work.kind != MUSTER_SAVE)) {
    return job->RequireWork("muster_done");
  }
  if (!job->has_reported && !job->Updates()) {
    return job->Fail(MUSTER_USAGE, "muster_done: call muster_report first");
  }
  job->at_work = false;
  job->pushed.clear();  // that all are written says as much
  job->pushed_floats = 0;
  if (job->work.kind == MUSTER_UPDATE) {
    return job->Send(Kind::kDone, &job->learning_rate, sizeof job->learning_rate);
  }
  return job->Send(Kind::kDone, nullptr, 0);
}

int muster_ask(muster_job* job, const char* key, int64_t step, int may, double seconds,
               muster_answer* answer) {
  if (const int code = job->CheckKey("muster_ask", key); code != MUSTER_OK) return code;
  if (job->asked_value && job->at_work && job->work.kind == MUSTER_SAVE) {
    return job->Fail(MUSTER_USAGE, "muster_ask: call muster_save and muster_done first");
  }
  if (!job->asked_value) {
    const Ask ask{.step = step,
                  .may_compute = (may & MUSTER_MAY_COMPUTE) != 0,
                  .may_save = (may & MUSTER_MAY_SAVE) != 0};
    std::string body(reinterpret_cast<const char*>(&ask), sizeof ask);
    body += key;
    if (const int code = job->SendText(Kind::kAsk, body); code != MUSTER_OK) return code;
    job->asked_key = key;
    job->asked_value = true;
  }
  if (!job->helper.Await(seconds)) return MUSTER_AGAIN;
  Kind kind{};
  std::string body;
  if (const int code = job->Receive(kind, body); code != MUSTER_OK) return code;
  if (kind == Kind::kWork && ReadWork(body, job->work, job->samples) &&
      job->work.kind == MUSTER_SAVE) {
    job->at_work = true;
    *answer = {.kind = MUSTER_GIVE_STATE, .value = nullptr, .bytes = 0};
    return MUSTER_OK;
  }
  job->asked_value = false;
  if (kind == Kind::kEnd) {
    const int code = job->ReadEnd(body);
    return code != MUSTER_OK ? code : job->Fail(MUSTER_PEER_FAILED, "muster_ask: the run is over");
  }
  Answer got{};
  if (kind != Kind::kAnswer || body.size() < sizeof got) return job->Lost();
  std::memcpy(&got, body.data(), sizeof got);
  job->value = body.substr(sizeof got);
  constexpr muster_answer_kind kKinds[] = {MUSTER_VALUE, MUSTER_COMPUTE, MUSTER_ABSENT};
  *answer = {.kind = kKinds[got.kind], .value = job->value.data(), .bytes = job->value.size()};
  return MUSTER_OK;
}

int muster_tell(muster_job* job, const char* key, int64_t step, const void* value, size_t bytes) {
  if (const int code = job->CheckKey("muster_tell", key); code != MUSTER_OK) return code;
  if (job->asked_value) return job->Fail(MUSTER_USAGE, "muster_tell: repeat muster_ask first");
  if (bytes > kMostValueBytes) {
    return job->Fail(MUSTER_USAGE, "muster_tell \"%s\": expected at most 65,536 bytes, got %zu",
                     key, bytes);
  }
  const auto key_bytes = static_cast<uint32_t>(std::strlen(key));
  const Tell tell{.step = step, .key_bytes = key_bytes, .unused = 0};
  std::string body(reinterpret_cast<const char*>(&tell), sizeof tell);
  body += key;
  body.append(static_cast<const char*>(value), bytes);
  return job->SendText(Kind::kTell, body);
}

int muster_fail(muster_job* job, const char* message) {
  if (!job->has_joined || job->is_over) {
    return job->Fail(MUSTER_USAGE, "muster_fail: this job is not running");
  }
  has_failed = true;
  if (const int code = job->SendText(Kind::kFailed, message); code != MUSTER_OK) return code;
  // The helper answers when the server has the message; the end of this process would cut it off.
  Kind kind{};
  std::string body;
  constexpr double kPatience = 10;
  while (job->helper.Await(kPatience) && job->helper.Receive(kind, body)) {
    if (kind != Kind::kEnd) continue;
    job->ReadEnd(body);
    return MUSTER_OK;
  }
  return job->Lost();
}

int muster_leave(muster_job* job) {
  if (!job->has_joined || job->is_over) {
    return job->Fail(MUSTER_USAGE, "muster_leave: this job is not running");
  }
  return job->Send(Kind::kLeave, nullptr, 0);
}

int muster_has_last_weights(const muster_job* job) { return job->has_last_weights ? 1 : 0; }

}  // extern "C"
