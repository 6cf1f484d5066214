/* test_run_folder.c: names of run folders and entries of the index, and files that cannot be
 * written. */
#include "client/cli/jobs/run_folder.h"

#include <stdlib.h>
#include <unistd.h>

#include "client/runs/run_index.h"
#include "common/base/system/directory.h"
#include "tests/gp_test.h"

static char root[64];

/* Change to a new directory. */
static void root_make(void)
{
    snprintf(root, sizeof(root), "/tmp/gp-test-run-folder-XXXXXX");
    REQUIRE(mkdtemp(root) != NULL);
    REQUIRE(chdir(root) == 0);
}

static void root_remove(void)
{
    CHECK(chdir("/") == 0);
    gp_directory_remove(root);
}

/* Open a run folder whose index is in the current directory.
 *   path  --folder; NULL: choose a new one */
static gp_status open_folder(run_folder *out, const char *network, const char *path, gp_error *err)
{
    static char name[] = "gradpool", *words[] = { name, NULL };
    static gp_train_options options;
    const run_folder_request request = { .network = network,
                                         .data = "digits",
                                         .argc = 1,
                                         .argv = words,
                                         .options = &options,
                                         .folder = path,
                                         .state_dir = ".",
                                         .board = RUN_BOARD_NONE };

    *out = (run_folder){ .lock = -1, .end = { .fd = -1 } };
    run_folder_start(out);
    if (gp_train_options_from_json(&options, "{\"resume\": \"auto\"}", 18, err) != GP_OK)
        return GP_EINVAL;
    return run_folder_open(out, &request, err);
}

/* What the index has. */
typedef struct listing {
    int count;
    char folder[4096]; /* of the newest run */
} listing;

static bool visit(void *context, const run_entry *entry)
{
    listing *l = context;

    l->count++;
    snprintf(l->folder, sizeof(l->folder), "%s", entry->folder);
    return true;
}

static listing listing_read(void)
{
    listing l = { 0 };
    gp_error err;

    CHECK_STATUS(GP_OK, run_index_each(".", visit, &l, &err));
    return l;
}

/* A name is cut at 39 bytes, which is within the 20th character of this one. */
TEST(index_has_the_folder_of_a_long_name_in_any_language)
{
    run_folder folder;
    listing l;
    gp_error err;

    root_make();
    CHECK_STATUS(GP_OK, open_folder(&folder, "models/éééééééééééééééééééééééé.onnx", NULL, &err));
    run_folder_close(&folder, NULL, NULL);
    l = listing_read();
    CHECK_INT(1, l.count);
    CHECK(access(l.folder, F_OK) == 0);
    root_remove();
}
