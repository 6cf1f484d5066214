#include "worker/backend/cuda/libraries/compiled.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/cached.h"
#include "common/base/memory/crc32c.h"

static const char head_word[] = "gradpool-compiled 1";

/* Compute the path for a plan file. Different plans may share a name; the file contents distinguish
 * them. */
static bool path_of(const gp_compiled *kept, const char *what, char path[PATH_MAX])
{
    int length = kept == NULL || kept->directory == NULL
                     ? -1
                     : snprintf(path, PATH_MAX, "%s/%08" PRIx32 "-%08" PRIx32 ".plan", kept->directory,
                                gp_crc32c(0, kept->libraries, strlen(kept->libraries)),
                                gp_crc32c(0, what, strlen(what)));

    return length > 0 && length < PATH_MAX;
}

/* Return the text after the expected line. NULL: the file has another line. */
static char *line_pass(char *text, const char *line)
{
    size_t length = strlen(line);

    return text != NULL && strncmp(text, line, length) == 0 && text[length] == '\n' ? text + length + 1
                                                                                    : NULL;
}

char *gp_compiled_read(const gp_compiled *kept, const char *what, size_t *bytes)
{
    char path[PATH_MAX], *text, *json;
    size_t got;
    gp_error ignored;

    if (!path_of(kept, what, path) ||
        gp_cached_read(&text, &got, path, head_word, GP_COMPILED_BYTES_MAX, &ignored) != GP_OK)
        return NULL;
    json = line_pass(line_pass(text, kept->libraries), what);
    if (json == NULL) {
        gp_free(text);
        return NULL;
    }
    *bytes = got - (size_t)(json - text);
    memmove(text, json, *bytes + 1);
    return text;
}

void gp_compiled_write(const gp_compiled *kept, const char *what, const char *json, size_t bytes)
{
    char path[PATH_MAX], *text;
    int head;
    gp_error ignored;

    if (!path_of(kept, what, path))
        return;
    head = snprintf(NULL, 0, "%s\n%s\n", kept->libraries, what);
    if (head < 0 || bytes > GP_COMPILED_BYTES_MAX - (size_t)head)
        return;
    text = gp_malloc((size_t)head + 1 + bytes);
    if (text == NULL)
        return;
    sprintf(text, "%s\n%s\n", kept->libraries, what);
    memcpy(text + head, json, bytes);
    gp_cached_write(path, head_word, text, (size_t)head + bytes, GP_COMPILED_FILES_MAX, &ignored);
    gp_free(text);
}

void gp_compiled_forget(const gp_compiled *kept, const char *what)
{
    char path[PATH_MAX];

    if (path_of(kept, what, path))
        unlink(path);
}
