/* gradpool_manual: write the manual pages and the completion scripts of the gradpool command. The
 * build runs this program, which is not installed.
 *
 *   gradpool_manual man GUIDE DIRECTORY     GUIDE: docs/gradpool.md
 *   gradpool_manual daemon NAME             standard input: the output of NAME --help
 *   gradpool_manual bash|zsh|fish TEMPLATE
 *
 * Pages of daemons and scripts go to standard output. */
#include "client/cli/manual/manual.h"

#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"

enum { INPUT_BYTES_MAX = 1 << 20 };

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    static char help[1 << 16];
    uint8_t *file = NULL;
    size_t bytes;
    gp_error err = { 0 };
    gp_status status = GP_OK;

    if (argc != (strcmp(what, "man") == 0 ? 4 : 3)) {
        fprintf(stderr,
                "usage: gradpool_manual man GUIDE DIRECTORY | daemon NAME | bash|zsh|fish TEMPLATE\n");
        return 2;
    }
    if (strcmp(what, "daemon") == 0) {
        help[fread(help, 1, sizeof(help) - 1, stdin)] = '\0'; /* longer input is cut */
        status = manual_daemon(stdout, argv[2], help, &err);
    } else {
        status = gp_file_read(&file, &bytes, argv[2], INPUT_BYTES_MAX, &err);
    }
    if (status == GP_OK && strcmp(what, "man") == 0)
        status = manual_pages((const char *)file, argv[3], &err);
    else if (status == GP_OK && strcmp(what, "bash") == 0)
        manual_completion_bash(stdout, (const char *)file);
    else if (status == GP_OK && strcmp(what, "zsh") == 0)
        manual_completion_zsh(stdout, (const char *)file);
    else if (status == GP_OK && strcmp(what, "fish") == 0)
        manual_completion_fish(stdout, (const char *)file);
    gp_free(file);
    if (status != GP_OK)
        fprintf(stderr, "gradpool_manual: %s\n", err.message);
    return status == GP_OK && fflush(stdout) == 0 ? 0 : 1;
}
