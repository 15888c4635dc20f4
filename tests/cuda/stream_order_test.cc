// Streams, events, steps and failures on the software GPU: correct programs work, wrong ones are
// detected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/cuda/gpu_fixture.h"

namespace muster::software_gpu {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

class StreamOrderTest : public GpuTest {
 protected:
  void TearDown() override {
    ForgetFailure();
    if (other_ != nullptr) cudaStreamDestroy(other_);
    if (event_ != nullptr) cudaEventDestroy(event_);
    GpuTest::TearDown();
  }
  // Creates a second stream and an event.
  void StartOther() {
    ASSERT_EQ(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
  }
  void WaitForBoth() {
    cudaStreamSynchronize(stream_);
    cudaStreamSynchronize(other_);
  }

  cudaStream_t other_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

// Copies to the same memory on two streams.
TEST_F(StreamOrderTest, FindsStreamsThatNothingOrders) {
  StartOther();
  char* const there = Allocate<char>(100);
  char* const here = AllocateHost<char>(100);
  ViolationRecorder recorder;
  cudaMemcpyAsync(there, here, 100, cudaMemcpyHostToDevice, stream_);
  cudaMemsetAsync(there + 99, 0, 1, other_);
  WaitForBoth();
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("no event orders them")));
}

TEST_F(StreamOrderTest, FindsAReaderThatNothingOrders) {
  StartOther();
  char* const there = Upload(std::vector<char>(100, 1));
  char* const here = AllocateHost<char>(100);
  ViolationRecorder recorder;
  cudaMemcpyAsync(here, there, 100, cudaMemcpyDeviceToHost, stream_);
  cudaMemsetAsync(there, 0, 1, other_);
  WaitForBoth();
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("no event orders them")));
}

TEST_F(StreamOrderTest, AGraphRepeatsWhatWasCaptured) {
  char* const there = Upload(std::vector<char>(100, 1));
  cudaGraph_t graph{};
  cudaGraphExec_t startable{};
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(there, 2, 100, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&startable, graph, 0), cudaSuccess);
  EXPECT_THAT(Leaks(), AllOf(Contains("a graph"), Contains("a graph that can be started")));
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_THAT(Download(there, 100), Each(1));
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(cudaMemsetAsync(there, 1, 100, stream_), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(startable, stream_), cudaSuccess);
    EXPECT_THAT(Download(there, 100), Each(2));
  }
  ASSERT_EQ(cudaGraphExecDestroy(startable), cudaSuccess);
}

TEST_F(StreamOrderTest, FindsCallsThatACaptureForbids) {
  StartOther();
  cudaGraph_t graph{};
  void* memory = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  {
    ViolationRecorder recorder;
    EXPECT_NE(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_NE(cudaEventRecord(event_, stream_), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&memory, 100), cudaSuccess);
    EXPECT_THAT(recorder.Take(),
                ElementsAre("cudaStreamSynchronize during a capture",
                            "cudaStreamSynchronize on a stream that is being captured",
                            "cudaEventRecord on a stream that is being captured",
                            "cudaMalloc during a capture"));
  }
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(StreamOrderTest, EventsAndTheHostOrderStreams) {
  StartOther();
  char* const there = Allocate<char>(100);
  char* const here = AllocateHost<char>(100);
  ASSERT_EQ(cudaMemcpyAsync(there, here, 100, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(there, 0, 100, other_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, other_), cudaSuccess);
  while (cudaEventQuery(event_) == cudaErrorNotReady) std::this_thread::yield();
  ASSERT_EQ(cudaMemsetAsync(there, 1, 100, stream_), cudaSuccess);
  EXPECT_THAT(Download(there, 100), Each(1));
}

// The wait is for the record at the time of the call, not for later ones.
TEST_F(StreamOrderTest, AWaitIsForTheRecordBefore) {
  StartOther();
  char* const there = Allocate<char>(100);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  ViolationRecorder recorder;
  cudaMemsetAsync(there, 1, 100, stream_);
  cudaEventRecord(event_, stream_);
  cudaMemsetAsync(there, 2, 100, other_);
  WaitForBoth();
  EXPECT_EQ(recorder.Take().size(), 1u);
}

TEST_F(StreamOrderTest, FindsEventsThatWereNeverRecorded) {
  StartOther();
  ViolationRecorder recorder;
  EXPECT_NE(cudaEventQuery(event_), cudaSuccess);
  EXPECT_NE(cudaEventSynchronize(event_), cudaSuccess);
  EXPECT_NE(cudaStreamWaitEvent(stream_, event_, 0), cudaSuccess);
  EXPECT_THAT(recorder.Take(), AllOf(SizeIs(3), Each(HasSubstr("never recorded"))));
}

TEST_F(StreamOrderTest, FindsWhatAStepMayNotDo) {
  void* const memory = Allocate<char>(100);
  void* more = nullptr;
  ViolationRecorder recorder;
  {
    const Step step;
    EXPECT_EQ(cudaMemsetAsync(memory, 0, 100, stream_), cudaSuccess);
    EXPECT_THAT(recorder.Take(), IsEmpty());
    cudaMalloc(&more, 100);
    cudaStreamSynchronize(stream_);
    cudaFree(more);
    EXPECT_THAT(recorder.Take(), AllOf(SizeIs(3), Each(HasSubstr("inside a step"))));
  }
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_THAT(recorder.Take(), IsEmpty());
}

TEST_F(StreamOrderTest, ACallFailsWhenItIsTold) {
  FailCall("cudaMalloc", 2, cudaErrorMemoryAllocation);
  void* first = nullptr;
  void* second = nullptr;
  EXPECT_EQ(cudaMalloc(&first, 100), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&second, 100), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&second, 100), cudaSuccess);
  EXPECT_EQ(Calls("cudaMalloc"), 3);
  EXPECT_THAT(AllCalls(), Contains(Pair("cudaStreamCreateWithFlags", 1)));
  EXPECT_EQ(cudaFree(first), cudaSuccess);
  EXPECT_EQ(cudaFree(second), cudaSuccess);
}

// Each thread works with GPU 0 until it selects another one, regardless of other threads.
TEST_F(StreamOrderTest, FindsThreadsThatHaveNotChosenTheCard) {
  cudaStreamDestroy(stream_);
  stream_ = nullptr;
  Reset({.devices = 2});
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  void* const memory = Allocate<char>(4);
  cudaEvent_t event = nullptr;
  std::thread([&] {
    ViolationRecorder recorder;
    (void)cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    EXPECT_THAT(recorder.Take(),
                ElementsAre(AllOf(HasSubstr("uses GPU 0"), HasSubstr("objects are on GPU 1"))));
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    EXPECT_THAT(recorder.Take(), IsEmpty());
  }).join();
  EXPECT_NE(memory, nullptr);
  // Free on the selected GPU as well.
  Free();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(StreamOrderTest, AMachineWithoutACard) {
  cudaStreamDestroy(stream_);
  stream_ = nullptr;
  Reset({.devices = 0});
  int count = 7;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 7);
}

}  // namespace
}  // namespace muster::software_gpu
