// page_check.mjs FOLDER PAGE...: opens pages in Chromium and prints what axe-core finds; 1 if that is anything.
// FOLDER has node_modules and gets the screenshots.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [folder, ...pages] = process.argv.slice(2);
const require = createRequire(path.join(folder, 'node_modules/'));
const puppeteer = require('puppeteer-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

// What axe does not look at: words outside of their picture, a page wider than its screen.
function inspect() {
  const found = [];
  if (document.documentElement.scrollWidth > window.innerWidth) found.push('the page is wider than the screen');
  for (const text of document.querySelectorAll('svg text')) {
    const box = text.getBBox(), view = text.ownerSVGElement.viewBox.baseVal;
    const fits = box.x >= 0 && box.y >= 0 && box.x + box.width <= view.width && box.y + box.height <= view.height;
    if (!fits) found.push(`"${text.textContent}" is outside of its picture`);
  }
  return found;
}

// Contrast in the wide page alone, with scroll boxes open: axe decides nothing about cells that they hide, and colours do
// not depend on the width. Nor does it decide about text in pictures, which has a unit test.
async function runAxe(isWide) {
  const results = [await window.axe.run(document, { rules: {
    'color-contrast': { enabled: false }, 'td-has-header': { enabled: true }, 'target-size': { enabled: true } } })];
  if (!isWide) return results;
  document.querySelectorAll('.scroll').forEach((one) => { one.style.overflow = 'visible'; });
  const of = { include: [['html']], exclude: [['svg text']] };
  return [...results, await window.axe.run(of, { runOnly: ['color-contrast'] })];
}

async function findings(page, isWide) {
  await page.evaluate(() => document.querySelectorAll('details').forEach((one) => { one.open = true; }));
  const found = await page.evaluate(inspect);
  await page.evaluate(axe);
  const results = await page.evaluate(runAxe, isWide);
  // A rule that could not be decided is a finding, too.
  const rules = results.flatMap((one) => [...one.violations, ...one.incomplete]);
  found.push(...rules.flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 120)}`)));
  const passed = new Set(results.flatMap((one) => one.passes).map((rule) => rule.id));
  const asked = ['td-has-header', 'target-size', 'svg-img-alt', isWide ? 'color-contrast' : 'scrollable-region-focusable'];
  for (const rule of asked) if (!passed.has(rule)) found.push(`axe has not looked at ${rule}`);
  return found;
}

async function look(browser, file, scheme, width) {
  const page = await browser.newPage();
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
  await page.setViewport({ width, height: 900 });
  const found = [];
  page.on('request', (one) => { if (one.url() !== pathToFileURL(file).href) found.push(`asks for ${one.url()}`); });
  page.on('console', (one) => found.push(`console: ${one.text()}`));
  await page.goto(pathToFileURL(file).href);
  const name = path.basename(file, '.html');
  await page.screenshot({ path: path.join(folder, `${name}-${scheme}-${width}.png`), fullPage: true });
  found.push(...await findings(page, width > 1000));
  await page.close();
  return found.map((one) => `${name}, ${scheme}, ${width} px: ${one}`);
}

const browser = await puppeteer.launch({
  executablePath: '/usr/bin/chromium', headless: true, protocolTimeout: 60000,
  args: ['--no-sandbox', '--disable-dev-shm-usage'],
});
const found = [];
for (const page of pages) {
  for (const scheme of ['light', 'dark']) {
    for (const width of [360, 1280]) found.push(...await look(browser, page, scheme, width));
  }
}
await browser.close();
for (const one of found) console.log(one);
console.log(`pages: ${pages.length} in 2 schemes and 2 widths, ${found.length} findings`);
process.exitCode = found.length === 0 ? 0 : 1;
