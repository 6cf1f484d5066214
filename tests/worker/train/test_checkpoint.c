/* test_checkpoint.c: checkpoints are complete or absent, damaged ones are named, and a full disk
 * keeps the older ones. */
#include "worker/train/checkpoint.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/crc32c.h"
#include "common/base/system/fault.h"
#include "common/base/system/fence.h"
#include "common/base/system/file.h"
#include "common/model/checkpoint_record.h"
#include "tests/gp_test.h"
#include "tests/leftovers.h"
#include "tests/common/model/nets.h"

static const gp_shape image = { 3, { 1, 8, 8 } };
static const char *const net = "c conv2d channels=4;kernel=3 | r relu | f fc outputs=5 | l crossentropy";

/* The state of a training, without a training. */
typedef struct stage {
    char directory[64];
    gp_graph *graph;
    gp_train_options options;
    gp_checkpoint_frame frame;
    gp_checkpoint state;
    bool ready;
} stage;

static float value_at(uint64_t step, size_t i)
{
    return (float)sin((double)step + 0.1 * (double)i);
}

static void stage_fill(stage *s, uint64_t step)
{
    size_t count = s->graph->blob_count;

    for (size_t i = 0; i < count; i++) {
        s->state.parameters[i] = value_at(step, i);
        s->state.state[i] = value_at(step, i + 1);
        s->state.state[count + i] = value_at(step, i + 2);
        s->state.best[i] = value_at(step, i + 3);
    }
    s->state.progress.step = s->state.optim_step = step;
    s->state.progress.epoch = 2;
    s->state.progress.first = 17;
    s->state.progress.best_loss = 0.25;
    s->state.progress.validations_since_best = 1;
    s->state.is_best = false;
}

static bool stage_open(stage *s, const char *text)
{
    gp_error err;

    memset(s, 0, sizeof(*s));
    strcpy(s->directory, "/tmp/gp-checkpoint-XXXXXX");
    if (leftovers_make(s->directory) == NULL || net_graph(&s->graph, &image, text, &err) != GP_OK)
        return false;
    gp_train_options_from_json(&s->options, "{\"solver\": \"adam\"}", 18, &err);
    s->frame = (gp_checkpoint_frame){
        .graph = s->graph, .options = &s->options, .data_fingerprint = 0xfeedbeef, .world = 2
    };
    s->state.state_blobs = 2;
    s->state.parameters = gp_calloc(s->graph->blob_count, sizeof(float));
    s->state.state = gp_calloc(s->graph->blob_count * 2, sizeof(float));
    s->state.best = gp_calloc(s->graph->blob_count, sizeof(float));
    s->ready = true;
    return true;
}

static void stage_close(stage *s)
{
    leftovers_clear(s->directory);
    gp_free(s->state.parameters);
    gp_free(s->state.state);
    gp_free(s->state.best);
    gp_graph_free(s->graph);
    memset(s, 0, sizeof(*s));
}

static void stage_write(stage *s, uint64_t step, bool best)
{
    gp_error err;

    stage_fill(s, step);
    s->state.is_best = best;
    REQUIRE_OK(gp_checkpoint_write(s->directory, &s->frame, &s->state, &err), err);
}

static gp_status stage_read(stage *s, char damaged[240], gp_error *err)
{
    memset(s->state.parameters, 0, s->graph->blob_count * sizeof(float));
    memset(s->state.state, 0, 2 * s->graph->blob_count * sizeof(float));
    memset(s->state.best, 0, s->graph->blob_count * sizeof(float));
    s->state.progress.step = 0;
    return gp_checkpoint_read(&s->state, &s->frame, s->directory, damaged, err);
}

static bool there(const stage *s, uint64_t step)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%llu.json", s->directory, (unsigned long long)step);
    return access(path, F_OK) == 0;
}

/* Flip bits in one byte of a file. */
static void flip(const stage *s, const char *name, long offset)
{
    char path[160];
    FILE *file;
    int byte;

    snprintf(path, sizeof(path), "%s/%s", s->directory, name);
    file = fopen(path, "r+");
    if (file == NULL || fseek(file, offset, offset < 0 ? SEEK_END : SEEK_SET) != 0)
        abort();
    byte = fgetc(file);
    fseek(file, -1, SEEK_CUR);
    fputc(byte ^ 0x10, file);
    fclose(file);
}

static stage s; /* stage of the running test */

static int readdir_left = -1; /* entries before readdir() fails; -1: it does not fail */

/* Replace the function of the C library. */
struct dirent *readdir(DIR *folder)
{
    __typeof__(&readdir) next = (__typeof__(&readdir))(uintptr_t)dlsym(RTLD_NEXT, "readdir64");

    if (readdir_left < 0 || readdir_left-- > 0)
        return next(folder);
    readdir_left = 0;
    errno = EIO;
    return NULL;
}

TEARDOWN()
{
    stage_close(&s);
}

TEST(the_checksum_is_castagnoli_s)
{
    unsigned char ones[32];

    memset(ones, 0xff, sizeof(ones));
    CHECK_INT(0xe3069283, gp_crc32c(0, "123456789", 9)); /* RFC 3720, B.4 */
    CHECK_INT(0x62a8ab43, gp_crc32c(0, ones, sizeof(ones)));
    CHECK_INT(0xe3069283, gp_crc32c(gp_crc32c(0, "1234", 4), "56789", 5));
}

TEST(checkpoint_survives_a_round_trip_bitwise)
{
    char damaged[240];
    gp_error err;

    REQUIRE(stage_open(&s, net));
    stage_write(&s, 41, true);
    REQUIRE_OK(stage_read(&s, damaged, &err), err);
    CHECK_TEXT("", damaged);
    CHECK_INT(41, s.state.progress.step);
    CHECK_INT(41, s.state.optim_step);
    CHECK_INT(2, s.state.progress.epoch);
    CHECK_INT(17, s.state.progress.first);
    CHECK_NEAR(0.25, s.state.progress.best_loss, 0.0);
    CHECK_INT(1, s.state.progress.validations_since_best);
    CHECK(s.state.is_best);
    for (size_t i = 0; i < s.graph->blob_count; i++) {
        if (s.state.parameters[i] != value_at(41, i) || s.state.state[i] != value_at(41, i + 1) ||
            s.state.state[s.graph->blob_count + i] != value_at(41, i + 2) ||
            s.state.best[i] != value_at(41, i + 3))
            GP_TEST_FAIL("element %zu differs", i);
    }
}

TEST(the_tensors_have_the_form_of_safetensors)
{
    char path[128], text[65536];
    uint64_t header;
    gp_json *json;
    gp_error err;
    FILE *file;

    REQUIRE(stage_open(&s, net));
    stage_write(&s, 7, false);
    snprintf(path, sizeof(path), "%s/7.safetensors", s.directory);
    file = fopen(path, "r");
    REQUIRE(file != NULL);
    REQUIRE(fread(&header, sizeof(header), 1, file) == 1 && header < sizeof(text) && header % 8 == 0);
    REQUIRE(fread(text, 1, header, file) == header);
    fclose(file);
    REQUIRE_OK(gp_json_parse(&json, text, header, &err), err);
    const gp_json *weight = gp_json_member(json, "c.weight");

    REQUIRE(weight != NULL);
    CHECK_TEXT("F32", gp_json_text(gp_json_member(weight, "dtype"), ""));
    CHECK_INT(4, gp_json_count(gp_json_member(weight, "shape")));
    CHECK(gp_json_member(json, "optimizer.1.f.bias") != NULL);
    CHECK(gp_json_member(json, "best.f.weight") != NULL);
    gp_json_free(json);
}

TEST(the_last_two_and_the_best_are_kept)
{
    REQUIRE(stage_open(&s, net));
    stage_write(&s, 10, true);
    stage_write(&s, 20, true);
    stage_write(&s, 30, false);
    stage_write(&s, 40, false);
    stage_write(&s, 50, false);
    CHECK(!there(&s, 10));
    CHECK(there(&s, 20)); /* the newest best checkpoint */
    CHECK(!there(&s, 30));
    CHECK(there(&s, 40));
    CHECK(there(&s, 50));
}

TEST(checkpoints_without_their_tensors_do_not_count_for_the_last_two)
{
    char path[128], damaged[240];
    gp_error err;

    REQUIRE(stage_open(&s, net));
    stage_write(&s, 10, false);
    stage_write(&s, 20, false);
    snprintf(path, sizeof(path), "%s/20.safetensors", s.directory);
    REQUIRE(truncate(path, 100) == 0);
    stage_write(&s, 30, false);
    CHECK(there(&s, 10) && there(&s, 30));
    snprintf(path, sizeof(path), "%s/30.safetensors", s.directory);
    REQUIRE(unlink(path) == 0);
    REQUIRE_OK(stage_read(&s, damaged, &err), err);
    CHECK_INT(10, s.state.progress.step);
    stage_write(&s, 40, false);
    stage_write(&s, 50, false);
    CHECK(!there(&s, 10) && there(&s, 40) && there(&s, 50));
}

TEST(run_prunes_only_its_own_checkpoints_except_the_latest)
{
    REQUIRE(stage_open(&s, net));
    strcpy(s.options.run_id, "long");
    stage_write(&s, 100, true);
    stage_write(&s, 110, false);
    strcpy(s.options.run_id, "short");
    for (uint64_t step = 1; step <= 4; step++) {
        stage_write(&s, step, false);
        CHECK(there(&s, step));
    }
    CHECK(there(&s, 100) && there(&s, 110));
    CHECK(!there(&s, 1) && !there(&s, 2) && there(&s, 3));

    /* A run that resumed an older checkpoint keeps the checkpoints that it writes afterwards. */
    strcpy(s.options.run_id, "long");
    stage_write(&s, 50, false);
    stage_write(&s, 60, false);
    stage_write(&s, 70, false);
    CHECK(!there(&s, 50) && there(&s, 60) && there(&s, 70));
}

TEST(a_checkpoint_of_another_run_is_neither_replaced_nor_resumed)
{
    char damaged[240];
    gp_error err;

    REQUIRE(stage_open(&s, net));
    strcpy(s.options.run_id, "first");
    stage_write(&s, 10, false);
    strcpy(s.options.run_id, "second");
    stage_write(&s, 5, false);
    stage_fill(&s, 10);
    CHECK_STATUS(GP_EBUSY, gp_checkpoint_write(s.directory, &s.frame, &s.state, &err));
    CHECK_CONTAINS(err.message, "10.json belongs to another run (first)");
    REQUIRE_OK(stage_read(&s, damaged, &err), err);
    CHECK_INT(5, s.state.progress.step);
    strcpy(s.options.run_id, "third");
    CHECK_STATUS(GP_ENOENT, stage_read(&s, damaged, &err));
}

TEST(a_damaged_checkpoint_is_named_and_the_one_before_is_used)
{
    static const struct {
        const char *file;
        long offset;
    } paths[] = {
        { "20.safetensors", 3 }, { "20.safetensors", 100 }, { "20.safetensors", -5 }, { "20.json", 5 }
    };
    char damaged[240];
    gp_error err;

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        REQUIRE(stage_open(&s, net));
        stage_write(&s, 10, false);
        stage_write(&s, 20, false);
        flip(&s, paths[i].file, paths[i].offset);
        REQUIRE_OK(stage_read(&s, damaged, &err), err);
        CHECK_INT(10, s.state.progress.step);
        CHECK_CONTAINS(damaged, "20.");
        CHECK(s.state.parameters[3] == value_at(10, 3));
        stage_close(&s);
    }
}

TEST(checkpoint_truncated_at_any_block_is_refused)
{
    char path[128], damaged[240];
    struct stat facts;
    gp_error err;

    REQUIRE(stage_open(&s, net));
    stage_write(&s, 10, false);
    snprintf(path, sizeof(path), "%s/10.safetensors", s.directory);
    REQUIRE(stat(path, &facts) == 0);
    for (long bytes = 0; bytes < facts.st_size; bytes += 97) {
        REQUIRE(truncate(path, bytes) == 0);
        CHECK_STATUS(GP_ECORRUPT, stage_read(&s, damaged, &err));
    }
    unlink(path);
    CHECK_STATUS(GP_ECORRUPT, stage_read(&s, damaged, &err));
}

TEST(changed_network_data_or_fixed_option_is_refused)
{
    char damaged[240];
    gp_error err;
    stage other;

    REQUIRE(stage_open(&s, net));
    stage_write(&s, 10, false);
    REQUIRE(stage_open(&other, "c conv2d channels=4;kernel=5 | r relu | f fc outputs=5 | l crossentropy"));
    CHECK_STATUS(GP_EINVAL, gp_checkpoint_read(&other.state, &other.frame, s.directory, damaged, &err));
    CHECK_CONTAINS(err.message, "do not match network");
    stage_close(&other);
    s.frame.data_fingerprint++;
    CHECK_STATUS(GP_EINVAL, stage_read(&s, damaged, &err));
    CHECK_CONTAINS(err.message, "other data");
    s.frame.data_fingerprint--;
    s.options.mini_batch_size = 64;
    CHECK_STATUS(GP_EINVAL, stage_read(&s, damaged, &err));
    CHECK_CONTAINS(err.message,
                   "mini-batch-size 128, but this training has 64; resume with --mini-batch-size 128");
    s.options.mini_batch_size = 128;
    s.options.initial_learn_rate = 0.5; /* may change */
    CHECK_STATUS(GP_OK, stage_read(&s, damaged, &err));
}

TEST(empty_directory_is_not_found_and_a_file_can_be_named)
{
    char damaged[240], path[128];
    gp_error err;

    REQUIRE(stage_open(&s, net));
    CHECK_STATUS(GP_ENOENT, stage_read(&s, damaged, &err));
    stage_write(&s, 10, false);
    stage_write(&s, 20, false);
    snprintf(path, sizeof(path), "%s/10.json", s.directory);
    REQUIRE_OK(gp_checkpoint_read(&s.state, &s.frame, path, damaged, &err), err);
    CHECK_INT(10, s.state.progress.step);
}

/* The entries before the error may lack the newest checkpoint. */
TEST(read_error_of_the_directory_is_not_hidden_by_the_checkpoints_before_it)
{
    char damaged[240];
    gp_error err;

    REQUIRE(stage_open(&s, net));
    stage_write(&s, 10, false);
    stage_write(&s, 20, false);
    for (int entries = 0; entries < 6; entries++) { /* 4 files, "." and ".." */
        readdir_left = entries;
        gp_status status = stage_read(&s, damaged, &err);

        readdir_left = -1;
        CHECK_STATUS(GP_EIO, status);
        CHECK_CONTAINS(err.message, "cannot list the checkpoints in ");
    }
}

/* Replace text in a record by text of the same length, and correct the checksum. */
static void record_edit(const char *name, const char *from, const char *to)
{
    char path[160], digits[GP_CHECKSUM_DIGITS + 1];
    gp_buffer record;
    uint8_t *data;
    size_t bytes;
    gp_error err;

    snprintf(path, sizeof(path), "%s/%s", s.directory, name);
    REQUIRE_OK(gp_file_read(&data, &bytes, path, GP_CHECKPOINT_RECORD_BYTES_MAX, &err), err);
    gp_buffer_init(&record, GP_CHECKPOINT_RECORD_BYTES_MAX);
    REQUIRE_OK(gp_buffer_append(&record, data, bytes, &err), err);
    gp_free(data);
    char *at = strstr(gp_buffer_text(&record), from);

    REQUIRE(at != NULL && strlen(from) == strlen(to));
    memcpy(at, to, strlen(to));
    gp_checkpoint_set_checksum(&record, gp_checkpoint_checksum(&record, digits));
    REQUIRE_OK(gp_file_write(path, record.data, record.bytes, &err), err);
    gp_buffer_deinit(&record);
}

/* The checkpoint is intact: an older one must not be used in its place. */
TEST(checkpoint_with_an_unknown_option_is_refused_with_the_option)
{
    char damaged[240];
    gp_error err;

    REQUIRE(stage_open(&s, net));
    stage_write(&s, 10, false);
    stage_write(&s, 20, false);
    record_edit("20.json", "\"momentum\"", "\"moment-q\"");
    CHECK_STATUS(GP_EVERSION, stage_read(&s, damaged, &err));
    CHECK_CONTAINS(err.message,
                   "20.json was written by another version of gradpool: unknown option 'moment-q'");
    CHECK_CONTAINS(err.message, "; resume with that version, or name an older STEP.json");
    CHECK_TEXT("", damaged);
}

/* The process is killed between the renames of the two files. */
TEST(interrupted_replacement_of_a_checkpoint_leaves_none_of_that_step)
{
    char damaged[240];
    gp_error err;

    REQUIRE(stage_open(&s, net));
    stage_write(&s, 10, false);
    stage_write(&s, 20, false);
    stage_fill(&s, 20);
    s.state.parameters[0] += 1;
    pid_t child = fork();
    int ended = -1;

    if (child == 0) {
        gp_fault_setup("checkpoint-renamed:1:kill", GP_FAULT_worker, 1, 1, &err);
        _exit((int)gp_checkpoint_write(s.directory, &s.frame, &s.state, &err));
    }
    waitpid(child, &ended, 0);
    CHECK(WIFSIGNALED(ended));
    CHECK(!there(&s, 20));
    REQUIRE_OK(stage_read(&s, damaged, &err), err);
    CHECK_TEXT("", damaged);
    CHECK_INT(10, s.state.progress.step);

    /* without a fault the next attempt succeeds */
    stage_write(&s, 20, false);
    REQUIRE_OK(stage_read(&s, damaged, &err), err);
    CHECK_INT(20, s.state.progress.step);
}

/* A file size limit simulates a full disk: both are detected before any byte is written. */
TEST(full_disk_keeps_old_checkpoints_and_leaves_no_partial_one)
{
    struct rlimit before, small = { .rlim_cur = 4096 };
    char damaged[240], path[160];
    gp_error err;

    REQUIRE(stage_open(&s, net));
    stage_write(&s, 10, false);
    stage_fill(&s, 20);
    signal(SIGXFSZ, SIG_IGN);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    small.rlim_max = before.rlim_max;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    gp_status status = gp_checkpoint_write(s.directory, &s.frame, &s.state, &err);

    setrlimit(RLIMIT_FSIZE, &before);
    CHECK_STATUS(GP_EIO, status);
    CHECK_CONTAINS(err.message, "no space for");
    snprintf(path, sizeof(path), "%s/.tmp-%d-20.safetensors", s.directory, (int)getpid());
    CHECK(access(path, F_OK) != 0);
    REQUIRE_OK(stage_read(&s, damaged, &err), err);
    CHECK_INT(10, s.state.progress.step);
}

TEST(a_directory_that_cannot_be_made_is_an_error_that_names_it)
{
    gp_error err;

    REQUIRE(stage_open(&s, net));
    stage_fill(&s, 1);
    CHECK_STATUS(GP_EIO, gp_checkpoint_write("/proc/no/such", &s.frame, &s.state, &err));
    CHECK_CONTAINS(err.message, "/proc/no/such");
}

TEST(saver_writes_in_the_background_and_reports_the_result)
{
    char text[480], damaged[240];
    gp_saver *saver;
    bool failed;
    gp_error err;

    REQUIRE(stage_open(&s, net));
    REQUIRE_OK(gp_saver_new(&saver, s.directory, &s.frame, &s.state, &err), err);
    stage_fill(&s, 5);
    CHECK(gp_saver_save(saver, &s.state));
    s.state.parameters[0] = 77; /* the saver has a copy */
    gp_saver_wait(saver);
    REQUIRE(gp_saver_events(saver, text, &failed));
    CHECK(!failed);
    CHECK_CONTAINS(text, "checkpoint of step 5");
    CHECK(!gp_saver_events(saver, text, &failed));
    gp_saver_free(saver);
    REQUIRE_OK(stage_read(&s, damaged, &err), err);
    CHECK(s.state.parameters[0] == value_at(5, 0));
}

TEST(a_saver_survives_every_failing_allocation)
{
    gp_saver *saver;

    REQUIRE(stage_open(&s, net));
    CHECK_EVERY_ALLOCATION(gp_saver_new(&saver, s.directory, &s.frame, &s.state, NULL), gp_saver_free(saver));
    gp_saver_free(NULL);
}

TEST(outdated_attempt_of_a_cluster_job_writes_no_checkpoint)
{
    char fence[200], damaged[240];
    gp_error err;

    REQUIRE(stage_open(&s, net));
    stage_write(&s, 10, false);
    stage_fill(&s, 20);
    snprintf(fence, sizeof(fence), "1:%s/newest", s.directory);
    REQUIRE_OK(gp_file_write(fence + 2, "2\n", 2, &err), err);
    pid_t child = fork(); /* a process reads its fence once */
    int ended = -1;

    if (child == 0) {
        setenv(GP_FENCE_VARIABLE, fence, 1);
        _exit((int)gp_checkpoint_write(s.directory, &s.frame, &s.state, &err));
    }
    waitpid(child, &ended, 0);
    CHECK(WIFEXITED(ended));
    CHECK_INT(GP_ESTALE, WEXITSTATUS(ended));
    CHECK(!there(&s, 20));
    REQUIRE_OK(stage_read(&s, damaged, &err), err);
    CHECK_INT(10, s.state.progress.step);
}
