// muster.h in C++17: objects instead of pointers, exceptions instead of codes.
//
//     muster::Job job;
//     const muster::Variable w = job.add("w", {10, 4});
//     fill(w.weights());                                // initial values; those of rank 0 are used
//     job.join(training_samples, 0, test_samples);
//     for (muster::Work work = job.next(); work.kind != MUSTER_END; work = job.next()) {
//       if (work.kind == MUSTER_STEP_END) continue;
//       job.report(forward(w.weights(), work));
//       if (work.kind == MUSTER_SLICE) backward(w.gradient(), work);
//       job.done();
//     }
//
// muster.h documents each function. Threads: one thread at a time may use a job.
#pragma once

#include <muster.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace muster {

// `code` is a muster_code. After any other than MUSTER_USAGE, the job is over.
class Error : public std::runtime_error {
 public:
  Error(int code, const std::string& what) : std::runtime_error(what), code(code) {}
  const int code;
};

using Work = muster_work;
using VariableOptions = muster_variable_options;

struct Answer {
  muster_answer_kind kind;
  std::string value;
};

// Valid as long as its job.
class Variable {
 public:
  Variable(muster_job* job, int number) : job_(job), number_(number) {}
  int number() const { return number_; }
  // Throws Error if memory is exhausted.
  float* weights() const { return Require(muster_weights(job_, number_)); }
  float* gradient() const { return Require(muster_gradient(job_, number_)); }

 private:
  float* Require(float* pointer) const {
    if (pointer == nullptr) throw Error(MUSTER_FAILURE, muster_error(job_));
    return pointer;
  }

  muster_job* job_;
  int number_;
};

class Job {
 public:
  Job() : job_(muster_create(), &muster_destroy) {
    if (job_ == nullptr) throw std::bad_alloc();
  }

  Variable add(const std::string& name, const std::vector<int64_t>& shape,
               const VariableOptions& options = {}) {
    const int number = muster_add_variable(job_.get(), name.c_str(), shape.data(),
                                           static_cast<int>(shape.size()), &options);
    if (number < 0) throw Error(MUSTER_USAGE, muster_error(job_.get()));
    return {job_.get(), number};
  }
  void set_optimizer(const std::string& optimizer, double learning_rate) {
    check(muster_set_optimizer(job_.get(), optimizer.c_str(), learning_rate));
  }
  void set_learning_rate(double rate) { check(muster_set_learning_rate(job_.get(), rate)); }
  void set_run(int64_t batch, int64_t epochs) { check(muster_set_run(job_.get(), batch, epochs)); }
  void set_drop_last(bool drops) { check(muster_set_drop_last(job_.get(), drops)); }
  void set_in_order(bool in_order) { check(muster_set_in_order(job_.get(), in_order)); }
  void set_loss_scaling(bool on) { check(muster_set_loss_scaling(job_.get(), on)); }
  void set_arithmetic(const std::string& text) {
    check(muster_set_arithmetic(job_.get(), text.c_str()));
  }
  void set_fingerprint(uint64_t fingerprint) { muster_set_fingerprint(job_.get(), fingerprint); }
  void join(int64_t training_samples, int64_t validation_samples, int64_t test_samples) {
    check(muster_join(job_.get(), training_samples, validation_samples, test_samples));
  }

  int64_t rank() const { return muster_rank(job_.get()); }
  int64_t first_step() const { return muster_first_step(job_.get()); }
  int64_t total_steps() const { return muster_total_steps(job_.get()); }
  int64_t steps_per_epoch() const { return muster_steps_per_epoch(job_.get()); }
  int64_t slices() const { return muster_slices(job_.get()); }
  bool has_last_weights() const { return muster_has_last_weights(job_.get()) != 0; }
  std::string state() const {
    size_t bytes = 0;
    const void* const at = muster_state(job_.get(), &bytes);
    return at == nullptr ? "" : std::string(static_cast<const char*>(at), bytes);
  }

  // Waits without limit.
  Work next() {
    Work work{};
    check(muster_next(job_.get(), -1, &work));
    return work;
  }
  Work plan(int64_t step, int64_t slice) {
    Work work{};
    check(muster_plan(job_.get(), step, slice, &work));
    return work;
  }
  void add_scalar(const std::string& name, double sum) {
    check(muster_add_scalar(job_.get(), name.c_str(), sum));
  }
  void set_weight(double weight) { check(muster_set_weight(job_.get(), weight)); }
  void report(double loss) { check(muster_report(job_.get(), loss)); }
  void push(const Variable& variable) { check(muster_push(job_.get(), variable.number())); }
  void save(const void* state, size_t bytes) { check(muster_save(job_.get(), state, bytes)); }
  void done() { check(muster_done(job_.get())); }
  // Waits without limit.
  Answer ask(const std::string& key, int64_t step, bool may_compute) {
    muster_answer answer{};
    const int may = may_compute ? MUSTER_MAY_COMPUTE : 0;
    check(muster_ask(job_.get(), key.c_str(), step, may, -1, &answer));
    return {answer.kind, std::string(answer.value, answer.bytes)};
  }
  void tell(const std::string& key, int64_t step, const std::string& value) {
    check(muster_tell(job_.get(), key.c_str(), step, value.data(), value.size()));
  }
  void fail(const std::string& message) { check(muster_fail(job_.get(), message.c_str())); }
  void leave() { check(muster_leave(job_.get())); }

  // For functions of muster.h that this class lacks.
  muster_job* get() const { return job_.get(); }

 private:
  void check(int code) const {
    if (code != MUSTER_OK) throw Error(code, muster_error(job_.get()));
  }

  std::unique_ptr<muster_job, decltype(&muster_destroy)> job_;
};

}  // namespace muster
