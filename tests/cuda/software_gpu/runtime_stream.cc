// The CUDA runtime's calls for streams and events.
#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "tests/cuda/software_gpu/device.h"
#include "tests/cuda/software_gpu/violation.h"

using namespace muster::software_gpu;  // NOLINT(google-build-using-namespace): C functions follow

namespace {

constexpr double kPatience = 60;

cudaError_t Create(cudaStream_t* stream, unsigned flags) {
  if ((flags & cudaStreamNonBlocking) == 0) {
    return Refuse(cudaErrorInvalidValue,
                  "a stream that waits for the default stream (expected cudaStreamNonBlocking)");
  }
  *stream = Device::Get().MakeStream();
  return *stream == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t WaitFor(const std::shared_ptr<Mark>& mark, const char* call) {
  if (!mark->Wait(kPatience)) {
    return Refuse(cudaErrorLaunchTimeout, std::string(call) + ": not done within a minute");
  }
  Device::Get().Learn(mark->clock());
  return cudaSuccess;
}

// A captured stream of our backend holds nothing but work.
Stream* FindUncaptured(cudaStream_t stream, const char* call) {
  Stream* const on = Device::Get().Find(stream, call);
  if (on == nullptr || !on->IsCapturing()) return on;
  ReportViolation(std::string(call) + " on a stream that is being captured");
  return nullptr;
}

// The mark of an event that exists and was recorded. Otherwise reports a violation, returns null.
std::shared_ptr<Mark> RecordedMark(cudaEvent_t event, const char* call) {
  if (!Device::Get().IsEvent(event)) {
    ReportViolation(std::string(call) + ": no such event");
    return nullptr;
  }
  if (event->mark == nullptr) {
    ReportViolation(std::string(call) +
                    ": an event that was never recorded (CUDA says it is done)");
  }
  return event->mark;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return RuntimeCall("cudaStreamCreateWithFlags", CallKind::kMakes,
                     [&] { return Create(stream, flags); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return RuntimeCall("cudaStreamCreateWithPriority", CallKind::kMakes,
                     [&] { return Create(stream, flags); });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return RuntimeCall("cudaStreamDestroy", CallKind::kNotInAStep, [&] {
    if (Device::Get().Find(stream, "cudaStreamDestroy") == nullptr) {
      return cudaErrorInvalidResourceHandle;
    }
    Device::Get().DestroyStream(stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return RuntimeCall("cudaStreamSynchronize", CallKind::kNotInAStep, [&] {
    Stream* const on = FindUncaptured(stream, "cudaStreamSynchronize");
    if (on == nullptr) return cudaErrorInvalidResourceHandle;
    return WaitFor(on->PushMark(Device::Get().known()), "cudaStreamSynchronize");
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return RuntimeCall("cudaStreamQuery", CallKind::kAnywhere, [&] {
    Stream* const on = FindUncaptured(stream, "cudaStreamQuery");
    if (on == nullptr) return cudaErrorInvalidResourceHandle;
    if (!on->IsIdle()) return cudaErrorNotReady;
    return WaitFor(on->PushMark(Device::Get().known()), "cudaStreamQuery");
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return RuntimeCall("cudaStreamWaitEvent", CallKind::kAnywhere, [&] {
    Stream* const on = FindUncaptured(stream, "cudaStreamWaitEvent");
    const std::shared_ptr<Mark> mark = RecordedMark(event, "cudaStreamWaitEvent");
    if (on == nullptr || mark == nullptr) return cudaErrorInvalidResourceHandle;
    on->PushWait(Device::Get().known(), mark);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return RuntimeCall("cudaEventCreateWithFlags", CallKind::kMakes, [&] {
    *event = Device::Get().MakeEvent((flags & cudaEventDisableTiming) == 0);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return RuntimeCall("cudaEventDestroy", CallKind::kNotInAStep, [&] {
    return Device::Get().DestroyEvent(event)
               ? cudaSuccess
               : Refuse(cudaErrorInvalidResourceHandle, "cudaEventDestroy: no such event");
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return RuntimeCall("cudaEventRecord", CallKind::kAnywhere, [&] {
    Stream* const on = FindUncaptured(stream, "cudaEventRecord");
    if (on == nullptr) return cudaErrorInvalidResourceHandle;
    if (!Device::Get().IsEvent(event)) {
      return Refuse(cudaErrorInvalidResourceHandle, "cudaEventRecord: no such event");
    }
    event->mark = on->PushMark(Device::Get().known());
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return RuntimeCall("cudaEventQuery", CallKind::kAnywhere, [&] {
    const std::shared_ptr<Mark> mark = RecordedMark(event, "cudaEventQuery");
    if (mark == nullptr) return cudaErrorInvalidResourceHandle;
    if (!mark->Poll()) return cudaErrorNotReady;
    Device::Get().Learn(mark->clock());
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return RuntimeCall("cudaEventSynchronize", CallKind::kAnywhere, [&] {
    const std::shared_ptr<Mark> mark = RecordedMark(event, "cudaEventSynchronize");
    return mark == nullptr ? cudaErrorInvalidResourceHandle : WaitFor(mark, "cudaEventSynchronize");
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return RuntimeCall("cudaEventElapsedTime", CallKind::kAnywhere, [&] {
    const std::shared_ptr<Mark> first = RecordedMark(begin, "cudaEventElapsedTime");
    const std::shared_ptr<Mark> last = RecordedMark(end, "cudaEventElapsedTime");
    if (first == nullptr || last == nullptr) return cudaErrorInvalidResourceHandle;
    if (!begin->timing || !end->timing) return cudaErrorInvalidResourceHandle;
    if (!first->IsReached() || !last->IsReached()) return cudaErrorNotReady;
    *milliseconds = 1;
    return cudaSuccess;
  });
}
}
