/* test_arrays.c: a training on arrays in memory: same result as from files, one shared copy, freed
 * at the end. */
#include "client/gradpool.h"
#include "common/data/store/store.h"
#include "tests/service/pools.h"

enum { COUNT = 600, PIXELS = 784 };

static uint8_t samples[COUNT * PIXELS];
static int32_t labels[COUNT];

static void digits_read(void)
{
    gp_store *store;
    gp_error err;

    REQUIRE_OK(gp_store_open(&store, "digits:600", GP_DATA_TRAIN, &err), err);
    for (uint32_t i = 0; i < COUNT; i++)
        REQUIRE_OK(gp_store_read(store, &i, 1, samples + (size_t)i * PIXELS, &labels[i], &err), err);
    gp_store_close(store);
}

/* Count the other processes that map the arrays of this source. */
static int mappers(const char *source)
{
    DIR *processes = opendir("/proc");
    char wanted[80], path[300], line[600];
    struct stat facts;
    int pid, fd, count = 0;

    if (sscanf(source, "arrays:%d:%d:", &pid, &fd) != 2 || fstat(fd, &facts) != 0 || processes == NULL)
        abort();
    snprintf(wanted, sizeof(wanted), " %lu ", (unsigned long)facts.st_ino);
    for (struct dirent *entry; (entry = readdir(processes)) != NULL;) {
        FILE *maps;
        bool found = false;

        snprintf(path, sizeof(path), "/proc/%s/maps", entry->d_name);
        maps = atoi(entry->d_name) <= 0 || atoi(entry->d_name) == (int)getpid() ? NULL : fopen(path, "r");
        while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
            found |= strstr(line, "gradpool-arrays") != NULL && strstr(line, wanted) != NULL;
        if (maps != NULL)
            fclose(maps);
        count += found;
    }
    closedir(processes);
    return count;
}

/* Wait until `wanted` processes map them; return the last count. */
static int mappers_become(const char *source, int wanted)
{
    int count;

    AWAIT((count = mappers(source)) == wanted, 20);
    return count;
}

static double train_loss(gp_pool *pool, const char *data)
{
    static const char *const options[] = { "max-epochs=5", "mini-batch-size=64", NULL };
    const gp_train_request request = {
        .network = "lenet", .data = data, .validation_data = "none", .options = options
    };
    gp_training_summary summary = { .loss = -1 };
    gp_training *training;
    gp_error err;

    if (gp_train(&training, pool, &request, &err) != GP_OK) {
        GP_TEST_FAIL("%s", err.message);
        return -1;
    }
    gp_training_summarize(training, &summary);
    gp_training_free(training);
    return summary.loss;
}

/* A training that runs until both workers were seen to map the arrays. */
typedef struct watch {
    const char *source;
    int mappers;
    volatile sig_atomic_t stop;
} watch;

static void take_step(void *context, const gp_train_step *step)
{
    watch *w = context;

    (void)step;
    if (w->stop == 0)
        w->mappers = mappers(w->source);
    w->stop = w->mappers == 2;
}

static int mappers_of_a_training(gp_pool *pool, const char *source)
{
    static const char *const options[] = { "max-epochs=100000", "mini-batch-size=64", NULL };
    watch w = { .source = source };
    const gp_train_request request = { .network = "lenet",
                                       .data = source,
                                       .validation_data = "none",
                                       .options = options,
                                       .stop = &w.stop,
                                       .events = { .step = take_step, .context = &w } };
    gp_training *training;
    gp_error err;

    if (gp_train(&training, pool, &request, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    else
        gp_training_free(training);
    return w.mappers;
}

TEST(training_on_arrays_matches_files_and_leaks_no_memory)
{
    const gp_array_dataset_info info = {
        .count = COUNT, .channels = 1, .height = 28, .width = 28, .class_count = 10
    };
    gp_array_dataset *arrays;
    gp_pool *pool;
    gp_error err;
    double expected;

    pools_begin(NULL);
    digits_read();
    REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .workers = 2 }, &err), err);
    expected = train_loss(pool, "digits:600");
    REQUIRE_OK(gp_array_dataset_new(&arrays, &info, samples, labels, &err), err);
    memset(samples, 0, sizeof(samples)); /* the library has a copy */
    CHECK(expected == train_loss(pool, gp_array_dataset_source(arrays)));

    /* both workers map the same file */
    CHECK_INT(2, mappers_of_a_training(pool, gp_array_dataset_source(arrays)));

    /* unmapped when the training ends */
    CHECK_INT(0, mappers_become(gp_array_dataset_source(arrays), 0));
    char source[200];

    snprintf(source, sizeof(source), "%s", gp_array_dataset_source(arrays));
    gp_array_dataset_free(arrays);
    const gp_train_request request = { .network = "lenet", .data = source, .validation_data = "none" };
    gp_training *training;

    CHECK_STATUS(GP_ENOENT, gp_train(&training, pool, &request, &err));
    CHECK_CONTAINS(err.message, "has exited or freed them");
    gp_pool_close(pool);
    pools_end();
}

TEST(invalid_arrays_are_refused)
{
    gp_array_dataset_info info = { .count = COUNT, .channels = 1, .height = 28, .width = 28 };
    gp_array_dataset *arrays;
    gp_error err;

    CHECK_STATUS(GP_EINVAL, gp_array_dataset_new(&arrays, &info, samples, labels, &err));
    CHECK_CONTAINS(err.message, "0 classes and 0 values");
    info.class_count = 10;
    CHECK_STATUS(GP_EINVAL, gp_array_dataset_new(&arrays, &info, samples, NULL, &err));
    info.height = 1 << 20;
    CHECK_STATUS(GP_ELIMIT, gp_array_dataset_new(&arrays, &info, samples, labels, &err));
    gp_array_dataset_free(NULL);
}
