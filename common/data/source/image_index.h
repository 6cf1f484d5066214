/* Image lists cached on disk, so that a folder with a million files is listed only once.
 *
 * A cached list is valid while modification time and inode of every listed directory are unchanged.
 * A list is saved only if all directories are older than two seconds: a file added within one clock
 * tick would not change the time stamp. A damaged index, or one of another version, is ignored.
 * Paths are relative to the source, so a list serves all processes, independent of the name they
 * use for the source. */
#ifndef GP_IMAGE_INDEX_H
#define GP_IMAGE_INDEX_H

#include "common/data/source/image_list.h"

enum { GP_IMAGE_INDEX_COUNT_MIN = 20000 }; /* shorter lists are read faster than an index */

/* Load the cached list for a source and role. Paths start with `directory`. Return false, with an
 * empty list, if no valid list is cached. */
bool gp_image_index_load(gp_image_list *list, const char *directory, gp_data_role role);

/* Cache a list made with the same `directory`, if it is long enough. Errors are ignored, because
 * the cache is optional. */
void gp_image_index_save(const gp_image_list *list, const char *directory, gp_data_role role);

#endif
