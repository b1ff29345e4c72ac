#!/bin/bash
# SPDX-License-Identifier: MIT
# localedef keeps its archive mapped, adds to it by stores and writes, and enlarges it by a new file that is renamed over.
. "$(dirname "$0")/lib.sh"
need localedef
[ -e /usr/share/i18n/locales/de_DE ] || skip 'no locale sources (package locales, for make programs)'

t_archive() {
	run mkdir -p usr/lib/locale
	for l in de_DE fr_FR nl_NL; do
		run localedef --prefix="$dir" -i $l -f ISO-8859-1 $l.ISO-8859-1
	done
	run localedef --prefix="$dir" --list-archive
	run localedef --prefix="$dir" --delete-from-archive fr_FR.iso88591
	run localedef --prefix="$dir" -i it_IT -f ISO-8859-1 it_IT
	plain localedef --prefix="$dir" --list-archive
	bytes usr/lib/locale/locale-archive
}
same archive
done_same
